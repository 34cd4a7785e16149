"""`outrider scale-plan` as a person and a program read it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from outrider.cli.scale_plan import read_load, scale_plan_command
from outrider.core.errors import MeasurementError, StackError
from outrider.deploy.scale_model import Phase

SHORT = ("--load", "5@5m,20@15m,5@5m")


def run(*options: str) -> Result:
    """The command with a short load."""
    return CliRunner().invoke(scale_plan_command, [*SHORT, *options])


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_its_columns_and_says_modelled(width: int) -> None:
    """No line is longer than asked; the first line says that nothing ran, and CPU scaling is called modelled and assumed."""
    found = run("--width", str(width))
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("MODELLED, all of it: no cluster ran.")
    text = " ".join(found.output.split())
    assert (
        "the same load, scaled on CPU: modelled, and assumed that an engine's pod uses 50% of the CPU" in text
    )
    assert "measured on NVIDIA H200 (dummy weights, synthetic acceptance" in text
    assert "load 5.0 → 20.0 requests/s: queue wait under 500 ms for good" in text


def test_json_has_every_second_and_its_inputs() -> None:
    """All of it for a program: modelled figures under that name, what went in beside them."""
    found = json.loads(run("--json", "--gpus", "2").output)
    assert found["schema"] == "outrider/scale-plan/v1"
    assert len(found["modelled"]["moments"]) == 25 * 60 + 1
    assert found["modelled"]["gpu_hours"] == 2 * found["modelled"]["replica_hours"]
    assert found["modelled_scaling_on_cpu"]["assumed"] == {"idle": 0.5, "full": 0.7, "target": 0.8}
    assert found["site"]["times"]["hardware"] == "NVIDIA H200"
    assert [one["kind"] for one in found["policy"]["metrics"]] == ["external", "external"]


def test_lost_requests_come_with_what_to_do() -> None:
    """A queue that is too small for the declared limits: said, with the settings that help."""
    found = run("--max-queue", "20", "--width", "100")
    assert "refused (queue full)" in found.output
    assert "→ lost requests: keep more replicas (min_replicas)" in found.output
    assert "→ lost" not in run("--set", "min_replicas=3").output


def test_times_of_a_cpu_are_labelled(tmp_path: Path) -> None:
    """A bench on a CPU may be planned with, and the plan says what it says nothing of."""
    source = Path(__file__).parents[2] / "results" / "h200" / "llama-3.3-70b.json"
    run_json = json.loads(source.read_text(encoding="utf-8"))
    run_json["provenance"]["engine"] = "vllm 0.26.0 (cpu)"
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run_json), encoding="utf-8")
    found = run("--times", str(path), "--width", "120")
    assert "measured on CPU (Intel(R) Xeon(R) Processor)" in found.output
    assert "these are a CPU's times: they say nothing of how many GPUs you need" in found.output


def test_a_stack_brings_its_limits(tmp_path: Path) -> None:
    """Concurrency and queue are the stack's where no option says otherwise."""
    stack = tmp_path / "stack.yaml"
    stack.write_text(
        "apiVersion: outrider/v1alpha1\ntarget: {model: org/model}\nengine: {max_running_requests: 24}\n"
        "serve: {lanes: {interactive: {max_queue: 77, queue_timeout_s: 9}}}\n",
        encoding="utf-8",
    )
    found = json.loads(run(str(stack), "--json").output)
    assert found["site"]["concurrency"] == 24
    assert found["site"]["queue"] == {"max_queue": 77, "queue_timeout_s": 9.0}
    assert found["policy"]["metrics"][1]["target"] == 19


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--concurrency", "500"), "no times beyond 128"),
        (("--set", "up_pods"), "is not KEY=VALUE"),
        (("--set", "up_pods=few"), "is not KEY=NUMBER"),
        (("--set", "uppods=1"), "there is no setting"),
        (("--cpu", "1"), "not three numbers"),
        (("--cpu", "0.9,0.5,0.8"), "0 ≤ IDLE ≤ FULL"),
        (("--load", "5"), "is not RATE@TIME"),
        (("--load", "5@soon"), "is not a time"),
        (("--load", "-1@5m"), "is not RATE@TIME"),
        (("--load", "nan@5m"), "is not RATE@TIME"),
        (("--load", "5@0s"), "takes no time"),
        (("--load", "9000@9h"), "played through are at most"),
    ],
)
def test_a_mistake_is_a_usage_error(options: tuple[str, ...], said: str) -> None:
    """Exit code 2 and a sentence."""
    found = run(*options)
    assert (found.exit_code, said in found.output) == (2, True), found.output


def test_other_mistakes_have_their_own_codes(tmp_path: Path) -> None:
    """A policy that cannot be read is a stack's error, times that are not there a measurement's."""
    assert isinstance(run("--policy", str(tmp_path / "gone.yaml")).exception, StackError)
    assert isinstance(run("--times", "gone.json").exception, MeasurementError)


def test_the_form_of_a_load() -> None:
    """Seconds, minutes, hours; a rate of zero is a pause."""
    assert read_load("2@90,0@1.5m,6@2h") == (Phase(2, 90), Phase(0, 90), Phase(6, 7200))
