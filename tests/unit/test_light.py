"""The core stays light: quick to import, nothing heavy behind `--help`, no torch or vLLM."""

import resource
import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "vllm",
    "transformers",
    "pydantic",
    "httpx",
    "yaml",
    "prometheus_client",
    "huggingface_hub",
    "uvloop",
)
LIMIT_S = 0.3


@pytest.mark.parametrize(
    "code", ["import outrider", "import sys; sys.argv[1:] = ['--help']; import outrider.__main__"]
)
def test_import_and_help_are_quick(code: str) -> None:
    """Under 0.3 s of CPU, best of five: waiting for other work on the machine does not count."""
    times = []
    for _ in range(5):
        began = cpu_s()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        times.append(cpu_s() - began)
    assert min(times) < LIMIT_S


def cpu_s() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_imports_nothing_heavy() -> None:
    """`outrider --help` loads click and our own few modules."""
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "try:\n    import outrider.__main__\nexcept SystemExit:\n    pass\n"
        f"sys.stderr.write(','.join(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert "outrider serve" in done.stdout
