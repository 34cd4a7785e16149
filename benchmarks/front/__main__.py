"""``python -m benchmarks.front``."""

from benchmarks.front.bench import main

main()
