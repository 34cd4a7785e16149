"""Pair rules on facts, and `outrider check` on a stack per case: every reason, by its rule's name."""

import filecmp
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from outrider.cli.check import check_command
from outrider.core.errors import EngineNotInstalled, Problem
from outrider.engines.vllm.adapter import VllmEngine
from outrider.stack.facts import HeadFacts, ModelFacts, TensorFacts, TokenizerFacts, facts_from_config
from outrider.stack.load import load_stack_text
from outrider.stack.models import Stack
from outrider.stack.pair import judge_pair
from outrider.stack.pair_heads import default_aux_layers

PAIRS = Path(__file__).parents[2] / "fixtures" / "pairs"
STACKS = sorted(PAIRS.glob("*.yaml"))

# Stack -> the rules that refuse it, each as often as it is told.
REFUSED = {
    "pair-aux-layers": ["pair-aux-layers"],
    "pair-aux-layers-outside": ["pair-aux-layers"],
    "pair-context": [],
    "pair-draft-tp": ["pair-draft-tp"],
    "pair-everything": [
        "pair-draft-tp",
        "pair-hidden-size",
        "pair-p-eagle",
        "pair-vocabulary",
        "quantization",
        "target-context",
    ],
    "pair-head-defects-eagle-1": ["head-is-eagle-1"],
    "pair-head-defects-no-draft-vocab": ["head-no-draft-vocab"],
    "pair-head-defects-zero-map": ["head-map-all-zero"],
    "pair-hidden-size": ["pair-hidden-size"],
    "pair-p-eagle-no-mask": ["pair-p-eagle"],
    "pair-p-eagle-plain-head": ["pair-p-eagle"],
    "pair-quantization": ["quantization"],
    "pair-vocabulary-sizes": ["pair-vocabulary"],
    "pair-vocabulary-tokens": ["pair-vocabulary"],
    "pair-whole-model": ["pair-method", "pair-vocabulary"],
}


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pair's side alone: what is installed here must not matter."""

    def find(self: VllmEngine, stack: object) -> None:
        raise EngineNotInstalled("no vLLM here")

    monkeypatch.setattr(VllmEngine, "find", find)


def check(name: str, *more: str) -> Result:
    """`outrider check` on one of the stacks, asking no hub."""
    return CliRunner().invoke(check_command, [str(PAIRS / f"{name}.yaml"), "--offline", *more])


def told(name: str, severity: str = "error") -> list[dict[str, str]]:
    """The problems of one severity that check tells, engine's aside: those depend on what is installed."""
    report = json.loads(check(name, "--json").stdout)
    problems = [p for p in report["problems"] if not p["rule"].startswith("engine-")]
    return [p for p in problems if p["severity"] == severity]


def test_every_stack_has_its_expectation() -> None:
    """No fixture is left out below, and none is only expected."""
    assert sorted(path.stem for path in STACKS) == sorted(REFUSED)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_check_refuses_with_every_reason(name: str) -> None:
    """Exit 10 where there are reasons, and exactly those, each printed with its file and line."""
    result = check(name)
    assert Counter(p["rule"] for p in told(name)) == Counter(REFUSED[name])
    assert result.exit_code == (10 if REFUSED[name] else 0), result.output
    flat = " ".join(result.output.split())
    for problem in told(name):
        assert f"{name}.yaml:{problem['line']}:" in flat
        assert f"[{problem['rule']}]" in flat
        assert problem["hint"]


def test_the_models_are_what_the_generator_makes(tmp_path: Path) -> None:
    """The committed tiny models are reproduced byte for byte."""
    subprocess.run([sys.executable, PAIRS / "make_models.py", tmp_path], check=True)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    committed = sorted(p.relative_to(PAIRS / "models") for p in (PAIRS / "models").rglob("*") if p.is_file())
    assert made == committed
    _, different, errors = filecmp.cmpfiles(tmp_path, PAIRS / "models", [str(p) for p in made], shallow=False)
    assert (different, errors) == ([], [])


# ---- the cases, by what they say ---------------------------------------------------------------------


def test_pair_vocabulary() -> None:
    """Other sizes are refused with both numbers; equal sizes with other token text are refused with the first such token."""
    (sizes,) = told("pair-vocabulary-sizes")
    assert "152,064" in sizes["message"]
    assert "32,002" in sizes["message"]
    (tokens,) = told("pair-vocabulary-tokens")
    assert "id 2 is 'c' for the target, 'x' for the draft" in tokens["message"]


def test_pair_head_defects() -> None:
    """Each of the three defects has its own name and says what is wrong with the head."""
    (rows,) = told("pair-head-defects-no-draft-vocab")
    assert "no draft_vocab_size, though its lm_head has 32,000 rows" in rows["message"]
    (generation,) = told("pair-head-defects-eagle-1")
    assert "EAGLE-1" in generation["message"]
    (zero,) = told("pair-head-defects-zero-map")
    assert "d2t map is all zero" in zero["message"]


def test_pair_aux_layers() -> None:
    """ids × hidden size must be fc's input, ids must exist, and the default for absent ids is told."""
    (product,) = told("pair-aux-layers")
    assert "4 aux layers [2, 46, 91, 93] × hidden size 4096 = 16384, but fc takes 12288" in product["message"]
    (outside,) = told("pair-aux-layers-outside")
    assert "[30] are not within the target's 12 layers" in outside["message"]
    notes = [p["message"] for p in told("pair-context", "note")]
    assert any("default is used: [2, 6, 9]" in note for note in notes)


def test_pair_context() -> None:
    """A head of fewer positions than are served is accepted, with a warning that has both numbers."""
    result = check("pair-context")
    assert result.exit_code == 0
    (warning,) = told("pair-context", "warning")
    assert warning["rule"] == "pair-context"
    assert "2048" in warning["message"]
    assert "40960" in warning["message"]


def test_pair_draft_tp() -> None:
    """Draft tensor parallelism 2 beside the target's 8 is refused: 1 or 8."""
    (problem,) = told("pair-draft-tp")
    assert "draft tensor parallel 2 with the target's 8" in problem["message"]
    assert problem["hint"] == "Use 1 or 8."


# ---- rules on facts ------------------------------------------------------------------------------------

TARGET = facts_from_config(
    {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "max_position_embeddings": 4096,
        "num_attention_heads": 4,
        "num_hidden_layers": 12,
        "vocab_size": 1000,
    },
    "org/Target-7B",
)
TOKENS = TokenizerFacts("one", {0: "a", 1: "b"})
OTHER = TokenizerFacts("two", {0: "a", 1: "c"})


def head_of(**changes: object) -> ModelFacts:
    """A sound EAGLE-3 head of TARGET, changed in its head's facts."""
    head = HeadFacts(None, None, 64, None, False, 3)
    return replace(TARGET, architecture="LlamaForCausalLMEagle3", layers=1, head=replace(head, **changes))  # type: ignore[arg-type]


def stack(method: str = "eagle3", **target: str) -> Stack:
    """A stack with this draft method, pinned."""
    lines = "".join(f"  {name}: {value}\n" for name, value in target.items())
    weights = "" if method in ("ngram", "none") else "  model: org/draft\n  revision: abc\n"
    text = f"target:\n  model: org/Target-7B\n  revision: abc\n{lines}draft:\n  method: {method}\n{weights}"
    return load_stack_text(f"apiVersion: outrider/v1alpha1\n{text}", "x")


def rules(found: list[Problem], severity: str = "error") -> list[str]:
    """Names of the rules that spoke at this severity."""
    return [problem.rule for problem in found if problem.severity == severity]


def test_a_sound_pair_passes() -> None:
    """A head that fits speaks only in notes."""
    found = judge_pair(stack(), TARGET, head_of())
    assert rules(found) == rules(found, "warning") == []


def test_equal_sizes_alone_never_pass() -> None:
    """A plain draft of equal size is refused unless both tokenizers are there and equal."""
    draft = replace(TARGET, layers=2)
    for left, right, passes in (
        (None, None, False),
        (TOKENS, None, False),
        (TOKENS, OTHER, False),
        (TOKENS, TOKENS, True),
    ):
        found = judge_pair(
            stack("draft-model"), replace(TARGET, tokenizer=left), replace(draft, tokenizer=right)
        )
        assert (rules(found) == []) == passes


def test_padding_needs_equal_tokenizers() -> None:
    """A head may have a padded embedding if its tokenizer is the target's; a plain draft may not, because vLLM refuses it."""
    padded = replace(head_of(), vocab_size=1024)
    known = replace(TARGET, tokenizer=TOKENS)
    assert rules(judge_pair(stack(), TARGET, padded)) == ["pair-vocabulary"]
    assert rules(judge_pair(stack(), known, replace(padded, tokenizer=OTHER))) == ["pair-vocabulary"]
    found = judge_pair(stack(), known, replace(padded, tokenizer=TOKENS))
    assert (rules(found), rules(found, "warning")) == ([], ["pair-vocabulary"])
    draft = replace(TARGET, layers=2, vocab_size=1024, tokenizer=TOKENS)
    assert rules(judge_pair(stack("draft-model"), known, draft)) == ["pair-vocabulary"]


def test_tokenizers_of_other_formats_cannot_be_compared() -> None:
    """A sentencepiece file against a tokenizer.json is not known to be equal, so it is refused."""
    binary = TokenizerFacts("tokenizer.model:1")
    found = judge_pair(
        stack("draft-model"), replace(TARGET, tokenizer=TOKENS), replace(TARGET, tokenizer=binary)
    )
    assert rules(found) == ["pair-vocabulary"]


def test_a_head_for_another_target_is_told_by_its_verifier() -> None:
    """A head that names another verifier is a warning; the same name, or none, is silent."""
    for verifier, warned in (("org/Target-7B", False), ("", False), ("other/Thing-8B", True)):
        found = judge_pair(stack(), TARGET, head_of(verifier=verifier))
        assert ("pair-verifier" in rules(found, "warning")) == warned


def test_an_all_zero_map_is_right_for_a_full_vocabulary() -> None:
    """A head that drafts from the whole vocabulary maps each token to itself: offsets of zero are no defect then."""
    whole = head_of(draft_vocab_size=1000, d2t_all_zero=True)
    assert rules(judge_pair(stack(), TARGET, whole)) == []
    assert rules(judge_pair(stack(), TARGET, head_of(draft_vocab_size=500, d2t_all_zero=True))) == [
        "head-map-all-zero"
    ]


def test_a_missing_map_is_told() -> None:
    """A smaller vocabulary without a map to the target's tokens is refused."""
    tensors = {"lm_head.weight": TensorFacts("BF16", (500, 64), 64000)}
    head = replace(head_of(draft_vocab_size=500), tensors=tensors)
    assert rules(judge_pair(stack(), TARGET, head)) == ["head-map-missing"]


def test_p_eagle_heads() -> None:
    """Accepted with token and state; a warning when run as eagle3; a token beyond the vocabulary is refused."""
    state = {"mask_hidden": TensorFacts("BF16", (1, 192), 384)}
    head = replace(head_of(parallel=True, parallel_token=999), tensors=state)
    assert rules(judge_pair(stack("p-eagle"), TARGET, head)) == []
    assert rules(judge_pair(stack("eagle3"), TARGET, head), "warning") == ["pair-p-eagle"]
    beyond = replace(head_of(parallel=True, parallel_token=1000), tensors=state)
    assert rules(judge_pair(stack("p-eagle"), TARGET, beyond)) == ["pair-p-eagle"]
    tokenless = replace(head_of(parallel=True), tensors=state)
    assert rules(judge_pair(stack("p-eagle"), TARGET, tokenless)) == ["pair-p-eagle"]


def test_a_head_is_no_plain_draft() -> None:
    """A head under method draft-model is refused by its kind."""
    target = replace(TARGET, tokenizer=TOKENS)
    assert "pair-method" in rules(
        judge_pair(stack("draft-model"), target, replace(head_of(), tokenizer=TOKENS))
    )


@pytest.mark.parametrize(
    ("stated", "stored", "error", "warning"),
    [
        ("none", "none", False, False),
        ("fp8", "fp8", False, False),
        ("awq", "int4", False, False),
        ("fp8", "none", False, True),
        ("awq", "none", True, False),
        ("none", "fp8", True, False),
        ("mxfp4", "awq", True, False),
    ],
)
def test_stated_quantization_must_be_the_stored_one(
    stated: str, stored: str, error: bool, warning: bool
) -> None:
    """Only FP8 can be made while loading; anything else that is stated must be what is stored."""
    target = replace(TARGET, quantization=replace(TARGET.quantization, label=stored))
    found = judge_pair(stack("ngram", quantization=stated), target, None)
    assert (rules(found), rules(found, "warning")) == (["quantization"] * error, ["quantization"] * warning)


def test_more_context_than_the_target_has() -> None:
    """Asking for more positions than the target knows is refused; fewer, or its own, is fine."""
    assert rules(judge_pair(stack("ngram", max_context_tokens="4097"), TARGET, None)) == ["target-context"]
    assert rules(judge_pair(stack("ngram", max_context_tokens="4096"), TARGET, None)) == []


def test_features_beside_a_draft() -> None:
    """Multimodal and LoRA with a head are warnings, structured output a note; without a draft nothing is said."""
    lora = stack().model_copy(
        update={"engine": stack().engine.model_copy(update={"extra_args": {"enable_lora": True}})}
    )
    found = judge_pair(lora, replace(TARGET, multimodal=True), head_of())
    assert rules(found, "warning") == ["feature-multimodal", "feature-lora"]
    assert "feature-structured-output" in rules(found, "note")
    assert rules(judge_pair(stack("none"), replace(TARGET, multimodal=True), None), "note") == []


def test_unpinned_hub_models_are_warned_of() -> None:
    """Each hub model without a commit is one warning; folders and packages are known by their content."""
    text = "apiVersion: outrider/v1alpha1\ntarget: {model: a/b}\ndraft: {method: eagle3, model: c/d}\n"
    found = judge_pair(load_stack_text(text, "x"), TARGET, head_of())
    assert [p.path for p in found if p.rule == "unpinned"] == ["target.revision", "draft.revision"]
    local = load_stack_text(text.replace("a/b", "/a/b").replace("c/d", "./d"), "x")
    assert "unpinned" not in rules(judge_pair(local, TARGET, head_of()), "warning")


def test_hub_weights_must_be_safetensors() -> None:
    """A hub model that lists files but no safetensors is refused; a bare config, whose files are unknown, is not."""
    pickled = replace(head_of(), files={"pytorch_model.bin": "c" * 64})
    assert rules(judge_pair(stack(), TARGET, pickled)) == ["weights-format"]


def test_default_aux_layers() -> None:
    """The engine's default: the third state, the middle, three before the end."""
    assert default_aux_layers(80) == (2, 40, 77)
