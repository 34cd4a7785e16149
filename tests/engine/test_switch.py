"""Each request its own draft, on the real engine: nothing changes what is said, drafts are credited to their own names.

Every server answers the same batches as the plain engine, in float32 and greedy, so tokens are equal or something is wrong. One
server drafts with the target itself: a draft that is always right, unless something was not read.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from outrider.core.acceptance import SpecCounters
from outrider.engines.vllm import metrics, switch
from outrider.engines.vllm.adapter import VllmEngine
from outrider.stack.load import load_stack
from outrider.stack.models import Stack
from outrider.stack.weights import resolve
from outrider.telemetry.scrape import parse
from tests.engine import switch_probe
from tests.engine.alone import run_alone
from tests.shared import shared_path
from tests.unit.engines.vllm_stacks import CPU

pytestmark = [pytest.mark.acceptance, pytest.mark.engine, pytest.mark.timeout(1200)]

K = 5
OWN = "own"  # stands for the server's own draft
MODES = (OWN, "ngram", "mix", "warm", "off")
PROMPTS = (
    "red, green, blue, red, green, blue, red, green, blue, red,",
    "def add(a, b):",
    "The history of Rome begins",
    "Repeat after me: the cat sat on the mat. The cat sat on the mat.",
)
STORY = (
    "In a small village by the sea there lived an old fisherman who mended nets and told stories about storms. One day a girl "
    "asked him why the lighthouse was dark, and he answered that the keeper had left for the mountains to look for his brother. "
    "The girl decided to climb the tower herself with a lamp and a box of matches. The stairs were steep, the wind was loud, and "
    "the door at the top would not open until she had pushed it three times with her shoulder. Then she saw the whole coast from "
    "above, and a ship without lights that came closer to the rocks every minute."
)
CITY = {"json": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}}

Request = dict[str, Any]
Batch = list[Request]


def ask(prompt: str, draft: str, tokens: int = 24, **more: Any) -> Request:
    """One request; `more` beside `params` is the probe's own."""
    params = {"max_tokens": tokens, **more.pop("params", {})}
    return {"prompt": prompt, "draft": draft, "params": params, **more}


def conversation(name: str, first: str, second: str) -> dict[str, Batch]:
    """Two turns: a first one longer than a cache block (128 tokens), and one that goes on from its answer."""
    opening = f"{name}. {STORY}"
    return {
        f"{name} 1": [ask(opening, first, 16, name=name)],
        f"{name} 2": [ask(" And then", second, 36, follows=name)],
    }


ODD: tuple[dict[str, Any], ...] = (
    {"frequency_penalty": 1.0, "presence_penalty": 0.5},
    {"repetition_penalty": 1.3},
    {"structured": CITY, "ignore_eos": False},
    {"structured": {"regex": r"(red|green)(, (red|green)){9}"}, "ignore_eos": False},
    {"bad_words": [" green"]},
    {"min_tokens": 8, "stop": ["blue"]},
)
BATCHES: dict[str, Batch] = {
    **{f"{mode} alone": [ask(PROMPTS[0], mode)] for mode in MODES},
    **{f"{mode} by four": [ask(prompt, mode) for prompt in PROMPTS] for mode in MODES},
    # ten requests of different length where eight run at once: rows of every draft come and go in one batch
    "mixed": [ask(PROMPTS[i % 4], MODES[i % 5], 12 + 7 * i) for i in range(10)],
    "odd": [ask(PROMPTS[0], MODES[i % 3], params=odd) for i, odd in enumerate(ODD * 2)],
    "two drafts": [ask(PROMPTS[2], OWN), ask(PROMPTS[0], "ngram")],
    "unknown": [ask(PROMPTS[1], "nonsense")],
    **conversation("without, then with", "off", OWN),
    **conversation("n-gram, then with", "ngram", OWN),
    **conversation("with, then with", OWN, OWN),
    **conversation("warm, then with", "warm", OWN),
    **conversation("with, then without", OWN, "off"),
    "to the end of the context": [ask(" a" * 245, "off", 200), ask(PROMPTS[2], OWN, 110)],
}
FEW = {
    name: BATCHES[name]
    for name in ("own by four", "mixed", "odd", "without, then with 1", "without, then with 2")
}
TIGHT: dict[str, Batch] = {
    "tight": [ask(f"{i}: {STORY[i * 20 : i * 20 + 200]}", MODES[i % 5], 110) for i in range(10)]
}
BATCH_ROOM = {"max_model_len": 256, "max_num_seqs": 8, "kv_cache_memory_bytes": 2**28}
TIGHT_ROOM = {"num_gpu_blocks_override": 8, "max_num_batched_tokens": 64}


class Run:
    """One engine's answers to the batches."""

    def __init__(self, batches: dict[str, Batch], results: list[dict[str, Any]], log: str) -> None:
        self.log = log
        self.batches = dict(zip(batches, results, strict=True))
        pages = [metrics.counters(parse(one["page"])) for one in results]
        self._pages = dict(zip(batches, pages, strict=True))
        self._before = dict(zip(batches, [None, *pages[:-1]], strict=True))
        self.last = results[-1]["page"]

    def tokens(self, batch: str) -> list[list[int]]:
        """The tokens of each request of a batch."""
        found: list[list[int]] = self.batches[batch]["tokens"]
        return found

    def whole(self, batch: str) -> tuple[float, float, float]:
        """Drafts, proposed, accepted tokens by the engine's own counters."""
        before, after = self._before[batch], self._pages[batch]
        return _minus(after.spec, before.spec if before else SpecCounters())

    def drafts(self, batch: str) -> dict[str, tuple[float, float, float]]:
        """Drafts, proposed, accepted tokens of each draft that had any."""
        before, after = self._before[batch], self._pages[batch]
        old = before.by_draft if before else {}
        found = {name: _minus(spec, old.get(name, SpecCounters())) for name, spec in after.by_draft.items()}
        return {name: counts for name, counts in found.items() if counts[0]}


def _minus(after: SpecCounters, before: SpecCounters) -> tuple[float, float, float]:
    return (
        after.drafts - before.drafts,
        after.proposed - before.proposed,
        after.accepted - before.accepted,
    )


def stack_of(draft: dict[str, Any], policy: bool = True) -> Stack:
    """The built-in stack with another draft."""
    built_in = load_stack(None).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    changes = {"draft": draft, "policy": {"enabled": policy}, "apiVersion": "outrider/v1alpha1"}
    return Stack.model_validate(built_in | changes)


def run(stack: Stack, draft: str | None, batches: dict[str, Batch], speculative: Any, **room: Any) -> Run:
    """Run one engine with the flags and the environment of the stack's plan; requests stamped as the adapter does it."""
    target = stack.target
    engine: dict[str, Any] = {"model": resolve(target.model, sha256=target.sha256), **BATCH_ROOM, **room}
    if speculative:
        engine["speculative_config"] = {"num_speculative_tokens": K, **speculative}
    flags = switch.arguments(stack, CPU)
    engine |= {
        flag.removeprefix("--").replace("-", "_"): value
        for flag, value in zip(flags[::2], flags[1::2], strict=True)
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_VLLM")}
    environ |= {"OUTRIDER_VLLM": "1", **switch.environment(stack, CPU)}
    job = {
        "engine": engine,
        "batches": [[_stamped(one, draft) for one in batch] for batch in batches.values()],
    }
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        log = run_alone([sys.executable, switch_probe.__file__, json.dumps(job), str(result)], environ)
        assert result.exists(), log[-4000:]
        return Run(batches, json.loads(result.read_text())["batches"], log)


def _stamped(request: Request, draft: str | None) -> Request:
    if draft is None:
        return {**request, "draft": None}
    name = draft if request["draft"] == OWN else request["draft"]
    stamp: dict[str, Any] = dict(VllmEngine().stamp(name))
    return {**request, "draft": stamp["vllm_xargs"]["outrider_draft"], "salt": stamp.get("cache_salt")}


def eagle3_head() -> Path:
    """The head that training starts from: about 1.1 tokens a step, 2 where the text repeats itself."""
    return shared_path("models", "smollm2-135m-eagle3-start")


@pytest.fixture(scope="module")
def plain() -> Run:
    """The engine without speculation and without the plugin's switch."""
    return run(stack_of({"method": "none"}), None, BATCHES | TIGHT, None)


@pytest.fixture(scope="module")
def eagle3() -> Run:
    """With the EAGLE-3 head that training starts from."""
    draft = {"method": "eagle3", "model": str(eagle3_head()), "draft_length": K}
    return run(stack_of(draft), "eagle3", BATCHES, {"method": "eagle3", "model": str(eagle3_head())})


@pytest.fixture(scope="module")
def perfect() -> Run:
    """With the target as its own draft model."""
    target = load_stack(None).target
    model = resolve(target.model, sha256=target.sha256)
    draft = {"method": "draft-model", "model": model, "draft_length": K}
    return run(stack_of(draft), "draft-model", BATCHES, {"method": "draft_model", "model": model})


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """With a P-EAGLE head: the EAGLE-3 one with a mask state that nobody trained, so that its first token is as good."""
    head = as_p_eagle(eagle3_head(), tmp_path_factory.mktemp("p-eagle"))
    draft = {"method": "p-eagle", "model": str(head), "draft_length": K}
    speculative = {"method": "eagle3", "model": str(head), "parallel_drafting": True}
    return run(stack_of(draft), "p-eagle", FEW, speculative)


@pytest.fixture(scope="module")
def ngram() -> Run:
    """A server without a head: n-gram or nothing."""
    speculative = {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    return run(stack_of({"method": "ngram", "draft_length": K}), "ngram", FEW, speculative)


@pytest.fixture(scope="module")
def tight() -> Run:
    """The EAGLE-3 head where eight blocks have to do for ten requests, and prompts come in parts of 64 tokens."""
    draft = {"method": "eagle3", "model": str(eagle3_head()), "draft_length": K}
    speculative = {"method": "eagle3", "model": str(eagle3_head())}
    return run(stack_of(draft), "eagle3", TIGHT, speculative, **TIGHT_ROOM)


@pytest.fixture(scope="module")
def untouched() -> Run:
    """The EAGLE-3 head with `policy: off`: the plugin is there and mends, nothing else."""
    draft = {"method": "eagle3", "model": str(eagle3_head()), "draft_length": K}
    speculative = {"method": "eagle3", "model": str(eagle3_head())}
    wanted = {name: BATCHES[name] for name in ("own alone", "own by four")}
    return run(stack_of(draft, policy=False), "eagle3", wanted, speculative)


def as_p_eagle(head: Path, folder: Path) -> Path:
    """A copy of an EAGLE-3 head with what P-EAGLE has beside: a mask token, and a state for it."""
    config = json.loads((head / "config.json").read_text())
    config |= {"speculators_model_type": "peagle", "mask_token_id": 0}
    config["speculators_config"] |= {"algorithm": "peagle"}
    (folder / "config.json").write_text(json.dumps(config))
    raw = (head / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    width = header["fc.weight"]["shape"][1]
    header["mask_hidden"] = {
        "dtype": "BF16",
        "shape": [1, 1, width],
        "data_offsets": [len(data), len(data) + 2 * width],
    }
    written = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(written)) + written + data + bytes(2 * width)
    )
    for other in head.iterdir():
        if other.name not in ("config.json", "model.safetensors") and other.is_file():
            shutil.copy(other, folder)
    return folder


SERVERS = ("eagle3", "perfect", "parallel", "ngram")


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Run:
    """Each of the servers that switch."""
    found: Run = request.getfixturevalue(request.param)
    return found


def test_says_what_the_plain_engine_says(server: Run, plain: Run) -> None:
    """Five drafts, one and four at once, mixed, with penalties and structured output, in conversations, at the context's end."""
    assert server.batches
    changed = [batch for batch in server.batches if server.tokens(batch) != plain.tokens(batch)]
    assert not changed


def test_counts_by_draft_are_the_engines_own_in_sum(server: Run) -> None:
    """Drafts, proposed and accepted tokens: what is counted by draft adds up to what vLLM counts, batch by batch."""
    for batch in server.batches:
        by_draft = server.drafts(batch)
        summed = tuple(sum(counts[i] for counts in by_draft.values()) for i in range(3))
        assert summed == server.whole(batch), batch
    assert server.drafts("mixed")


@pytest.mark.parametrize("mode", ["warm", "off"])
@pytest.mark.parametrize("size", ["alone", "by four"])
def test_no_draft_means_none(eagle3: Run, mode: str, size: str) -> None:
    """A request that is off or warm has no draft verified."""
    assert eagle3.whole(f"{mode} {size}") == (0, 0, 0)


def test_two_drafts_in_one_batch_are_credited_apart(perfect: Run, ngram: Run) -> None:
    """A draft that is always right has all of its tokens accepted, although n-gram beside it has not; the names are theirs."""
    found = perfect.drafts("mixed")
    assert set(found) == {"draft-model", "ngram", "mix"}
    assert found["draft-model"][1] == K * found["draft-model"][0]
    # only a request's last draft is cut short by its end
    assert found["draft-model"][2] >= found["draft-model"][1] - 2 * K
    assert 0 < found["ngram"][2] < found["ngram"][1]
    assert set(perfect.drafts("two drafts")) == {"draft-model", "ngram"}
    assert set(ngram.drafts("mixed")) == {"ngram"}


def test_drafts_are_as_long_as_the_stack_asks(eagle3: Run, parallel: Run) -> None:
    """K = 5 of the head, and of n-gram on the same server."""
    for one, name in ((eagle3, "eagle3"), (parallel, "p-eagle")):
        drafts, proposed, accepted = one.drafts("own by four")[name]
        assert proposed == K * drafts
        assert accepted > 0
    drafts, proposed, _ = eagle3.drafts("ngram by four")["ngram"]
    assert proposed == K * drafts


def test_ngram_needs_fewer_steps_where_text_repeats(eagle3: Run) -> None:
    """On a repeating text n-gram's drafts are accepted nearly whole; mix drafts at least as much and takes them, too."""
    for mode in ("ngram", "mix"):
        drafts, proposed, accepted = eagle3.drafts(f"{mode} alone")[mode]
        assert accepted > 0.8 * proposed
        assert drafts <= 8


@pytest.mark.parametrize("first", ["without", "n-gram"])
def test_a_head_never_reads_blocks_it_has_not_written(perfect: Run, plain: Run, first: str) -> None:
    """A conversation that began without the head: it gets no cached block of then, and every draft is right.

    Plain, the block would be taken from the cache. With it the same draft has about a third of its tokens accepted.
    """
    assert plain.batches[f"{first}, then with 2"]["cached"] == [128]
    assert perfect.batches[f"{first}, then with 2"]["cached"] == [0]
    drafts, proposed, accepted = perfect.drafts(f"{first}, then with 2")["draft-model"]
    assert accepted >= proposed - K, (drafts, proposed, accepted)


@pytest.mark.parametrize("first", ["with", "warm"])
def test_a_head_takes_the_blocks_it_has_written(perfect: Run, first: str) -> None:
    """Within the head's own drafts the prefix cache works as ever: the block is taken, and every draft is right."""
    assert perfect.batches[f"{first}, then with 2"]["cached"] == [128]
    drafts, proposed, accepted = perfect.drafts(f"{first}, then with 2")["draft-model"]
    assert accepted >= proposed - K, (drafts, proposed, accepted)


def test_a_neighbour_at_the_end_of_its_context_leaves_no_hole(perfect: Run) -> None:
    """One request runs into its context's end, where nothing can be drafted; the other's drafts stay right afterwards."""
    drafts, proposed, accepted = perfect.drafts("to the end of the context")["draft-model"]
    assert drafts > 12  # it went on after the other had ended, eleven steps in
    assert accepted >= 0.8 * proposed, (drafts, proposed, accepted)


def test_preempted_requests(tight: Run, plain: Run) -> None:
    """Requests that lose their blocks and begin again say the same, whatever their draft."""
    assert "vllm:num_preemptions_total" in tight.last
    preempted = parse(tight.last).total(("vllm:num_preemptions_total",))
    assert preempted
    assert tight.tokens("tight") == plain.tokens("tight")


def test_untouched_without_a_policy(untouched: Run, eagle3: Run, plain: Run) -> None:
    """`policy: off`: no line of the switch, no counter by draft. With the switch and nothing to do: the same drafts."""
    assert "each request has its own draft" not in untouched.log
    assert "each request has its own draft" in eagle3.log
    assert "outrider_vllm_" not in untouched.last
    for batch in untouched.batches:
        assert untouched.tokens(batch) == plain.tokens(batch)
        assert untouched.whole(batch) == eagle3.whole(batch)


def test_an_unknown_stamp_is_the_servers_draft(eagle3: Run) -> None:
    """What nobody knows is not obeyed: the request has the server's draft, and is counted as its."""
    assert set(eagle3.drafts("unknown")) == {"eagle3"}
