"""``python3 -m benchmarks.h200``."""

from benchmarks.h200.driver import main

main()
