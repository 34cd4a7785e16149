"""The switch without an engine: which draft a row gets, when the head reads, what is refused, what a fault does."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider_vllm import counters, drafts, faults, switch
from outrider_vllm.ngram import continuation

HEAD = [[101, 102, 103], [201, 202, 203], [301, 302, 303], [401, 402, 403], [501, 502, 503]]
REPEATS = [1, 2, 3, 4, 1, 2, 3, 4, 1]  # and then, sampled: 2, which 3 4 1 followed
NEW = [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.fixture(autouse=True)
def no_counts() -> None:
    """Each test counts its own faults."""
    faults.counts.clear()


def by_hand(tokens: list[int], length: int, shortest: int, longest: int) -> list[int]:
    """As `continuation`, the slow way."""
    for n in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        for end in range(len(tokens) - 1, n - 1, -1):
            if tokens[end - n : end] == tokens[-n:]:
                return [tokens[end + i % (len(tokens) - end)] for i in range(length)]
    return []


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(0, 4),
)
def test_continuation(tokens: list[int], length: int, shortest: int, more: int) -> None:
    """The longest n-gram that stands before, of equal ones the latest; what followed, with its period past the end."""
    found = continuation(np.array(tokens, dtype=np.int32), length, shortest, shortest + more)
    assert found == by_hand(tokens, length, shortest, shortest + more)


@pytest.mark.parametrize(
    ("method", "parallel", "name"),
    [
        ("eagle3", False, "eagle3"),
        ("eagle3", True, "p-eagle"),
        ("draft_model", False, "draft-model"),
        ("ngram", False, "ngram"),
    ],
)
def test_the_servers_draft_by_the_engines_words(method: str, parallel: bool, name: str) -> None:
    """vLLM's method is one of our names."""
    assert drafts.server_draft(SimpleNamespace(method=method, parallel_drafting=parallel)) == name
    assert name in drafts.NAMES


@pytest.mark.parametrize(
    ("arguments", "draft"),
    [
        (None, "eagle3"),
        ({}, "eagle3"),
        ({"outrider_draft": "ngram"}, "ngram"),
        ({"outrider_draft": "off"}, "off"),
        ({"outrider_draft": "p-eagle"}, "eagle3"),
        ({"outrider_draft": "nonsense"}, "eagle3"),
        ({"outrider_draft": ["off"]}, "eagle3"),
        ({"draft": "off"}, "eagle3"),
    ],
)
def test_the_draft_of_a_request(arguments: Any, draft: str) -> None:
    """Its stamp's, where the server has that; else the server's, whatever stands there."""
    assert drafts.draft_of(SimpleNamespace(extra_args=arguments), "eagle3") == draft


def test_a_request_without_sampling_parameters_has_the_servers_draft() -> None:
    """Pooling requests have none."""
    assert drafts.draft_of(None, "ngram") == "ngram"


def test_mix_and_warm_need_a_head() -> None:
    """A server without a head answers n-gram and off."""
    assert drafts.answered("ngram") == {"ngram", "off"}
    assert drafts.draft_of(SimpleNamespace(extra_args={"outrider_draft": "mix"}), "ngram") == "ngram"


class Drafter:
    """Stands for vLLM's: says what it was asked for, and drafts HEAD."""

    net_num_new_slots_per_request = 0
    _enable_probabilistic_draft_probs = False

    def __init__(self) -> None:
        self.asked: list[int] = []

    def propose(
        self,
        num_speculative_tokens: int,
        target_positions: torch.Tensor,
        next_token_ids: torch.Tensor,
        token_indices_to_sample: torch.Tensor | None,
        common_attn_metadata: Any,
    ) -> torch.Tensor:
        """The head's drafts of all rows."""
        self.asked.append(num_speculative_tokens)
        return torch.tensor(HEAD[: len(next_token_ids)])[:, :num_speculative_tokens]


class Runner:
    """Stands for vLLM's: a batch of requests with these stamps and tokens, ten tokens each with the one just sampled."""

    use_async_scheduling = False
    effective_drafter_max_model_len = 32

    def __init__(self, *stamped: str, tokens: list[int] = REPEATS) -> None:
        self.drafter: Any = Drafter()
        self.speculative_config = SimpleNamespace(method="eagle3", parallel_drafting=False)
        self.requests = {
            f"r{i}": SimpleNamespace(sampling_params=SimpleNamespace(extra_args={drafts.STAMP: stamp}))
            for i, stamp in enumerate(stamped)
        }
        rows = np.zeros((len(stamped), 32), dtype=np.int32)
        rows[:, : len(tokens)] = tokens
        rows[:, len(tokens) : len(tokens) + 2] = 77  # rejected drafts, behind the tokens
        self.input_batch = SimpleNamespace(req_ids=list(self.requests), token_ids_cpu=rows)

    def _input_fits_in_drafter(self, metadata: Any) -> bool:
        return metadata is not None and metadata.max_seq_len + 3 <= 32

    def propose(self, seq_len: int = 9) -> list[list[int]]:
        """The drafts of a step in which every row had three input tokens, of which the first was right."""
        rows = len(self.requests)
        metadata = SimpleNamespace(max_seq_len=seq_len, query_start_loc=torch.arange(rows + 1) * 3)
        assert self._input_fits_in_drafter(metadata)
        made = self.drafter.propose(
            num_speculative_tokens=3,
            target_positions=torch.tensor([8, 9, 10] * rows),
            next_token_ids=torch.tensor([2] * rows),
            token_indices_to_sample=torch.arange(rows) * 3,
            common_attn_metadata=metadata,
        )
        found: list[list[int]] = made.tolist() if isinstance(made, torch.Tensor) else made
        return found


def switched(*stamped: str, tokens: list[int] = REPEATS) -> Runner:
    """A runner with the switch in."""
    runner = Runner(*stamped, tokens=tokens)
    assert switch.put_in(runner, "0.32.0", (2, 4)) == drafts.answered("eagle3")
    return runner


def asked(runner: Runner) -> list[int]:
    """What the plain drafter was asked for."""
    found: list[int] = runner.drafter.propose.__self__._plain.__self__.asked
    return found


@pytest.mark.parametrize(
    ("stamped", "tokens", "answer", "of_head"),
    [
        (["eagle3", "eagle3"], REPEATS, HEAD[:2], [3]),
        (["ngram", "ngram"], REPEATS, [[3, 4, 1]] * 2, []),
        (["ngram"], NEW, [[]], []),
        (["off", "off"], REPEATS, [[], []], []),
        (["warm", "off"], REPEATS, [[], []], [0]),
        (["warm", "ngram"], REPEATS, [[], [3, 4, 1]], [0]),
        (["mix", "off"], REPEATS, [[3, 4, 1], []], [0]),
        (["mix", "off"], NEW, [HEAD[0], []], [3]),
        (["eagle3", "ngram", "mix", "warm", "off"], REPEATS, [HEAD[0], [3, 4, 1], [3, 4, 1], [], []], [3]),
        (["eagle3", "ngram", "mix", "warm", "off"], NEW, [HEAD[0], [], HEAD[2], [], []], [3]),
    ],
)
def test_rows_get_their_drafts_and_the_head_reads_what_it_must(
    stamped: list[str], tokens: list[int], answer: list[list[int]], of_head: list[int]
) -> None:
    """Each row its own; the head drafts where a row needs that, only reads where one needs no more, else is left out."""
    runner = switched(*stamped, tokens=tokens)
    assert runner.propose() == answer
    assert asked(runner) == of_head


@pytest.mark.parametrize("stamped", [["eagle3"], ["eagle3", "off"], ["mix"], ["warm", "ngram"]])
def test_at_the_contexts_end_the_head_reads_and_nobody_drafts(stamped: list[str]) -> None:
    """Where a draft would not fit, the head still reads, which it would not alone."""
    runner = switched(*stamped)
    assert runner.propose(seq_len=31) == [[] for _ in stamped]
    assert asked(runner) == [0]


def test_a_drafter_that_adds_tokens_is_not_asked_without_room() -> None:
    """A draft model reads one position further than the tokens go: not past the context."""
    runner = switched("eagle3")
    runner.drafter.net_num_new_slots_per_request = 1
    fits = runner._input_fits_in_drafter
    assert [fits(SimpleNamespace(max_seq_len=length)) for length in (29, 31, 32)] == [True, True, False]
    assert fits(None) is False


def test_a_fault_gives_every_row_the_head(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours is counted and logged once, and the engine drafts as it would alone."""
    runner = switched("ngram", "off")

    def fail(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(switch, "draft_of", fail)
    with caplog.at_level(logging.ERROR):
        assert runner.propose() == HEAD[:2]
        assert runner.propose() == HEAD[:2]
    assert faults.counts["switch"] == 2
    assert len(caplog.records) == 1


def test_a_fault_in_the_n_grams_leaves_rows_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head's rows have theirs, mix falls to the head, n-gram to none."""
    runner = switched("ngram", "mix", "off")

    def fail(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(switch, "continuation", fail)
    assert runner.propose() == [[], HEAD[1], []]


def test_the_engines_own_faults_are_the_engines() -> None:
    """What the head raises is not swallowed."""
    runner = switched("eagle3")

    def fail(**_: object) -> None:
        raise RuntimeError("theirs")

    runner.drafter.propose.__self__._plain = fail
    with pytest.raises(RuntimeError, match="theirs"):
        runner.propose()


def renamed(runner: Runner) -> None:
    """A seam that is not as it was: the drafter is asked for something else."""
    runner.drafter.propose = lambda hidden_states: None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda runner: setattr(runner, "use_async_scheduling", True), "ahead of the worker"),
        (lambda runner: setattr(runner, "drafter", None), "no drafter"),
        (lambda runner: setattr(runner.speculative_config, "method", "medusa"), "medusa"),
        (lambda runner: delattr(runner.input_batch, "token_ids_cpu"), "token_ids_cpu"),
        (lambda runner: delattr(runner, "requests"), "requests"),
        (lambda runner: setattr(runner.drafter, "_enable_probabilistic_draft_probs", True), "distribution"),
        (renamed, "common_attn_metadata"),
    ],
)
def test_what_is_not_as_expected_is_left_alone(change: Any, why: str) -> None:
    """The reason is said, and the runner is as it was."""
    runner = Runner("off")
    change(runner)
    before = dict(vars(runner)), dict(vars(runner.drafter) if runner.drafter else {})
    with pytest.raises(switch.Unswitchable, match=why):
        switch.put_in(runner, "0.32.0", (2, 4))
    assert (dict(vars(runner)), dict(vars(runner.drafter) if runner.drafter else {})) == before


@pytest.mark.parametrize("version", ["0.31.0", "0.33.0", "0.3", "dev"])
def test_other_versions_are_left_alone(version: str) -> None:
    """Only versions that were tried are switched."""
    with pytest.raises(switch.Unswitchable, match="not tried"):
        switch.put_in(Runner("off"), version, (2, 4))


def test_why_not_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """One line that says what became of it, either way."""

    def refuse() -> frozenset[str]:
        raise switch.Unswitchable("it is Monday")

    with caplog.at_level(logging.INFO):
        switch.log_outcome(refuse)
        switch.log_outcome(lambda: frozenset({"ngram", "off"}))
    assert "it is Monday" in caplog.messages[0]
    assert "ngram, off" in caplog.messages[1]


def test_an_n_gram_server_leaves_out_rows_that_are_off() -> None:
    """The plain drafter sees nothing sampled in such a row, and drafts nothing for it."""
    runner = Runner("ngram", "off", "ngram")
    runner.speculative_config.method = "ngram"
    seen: list[Any] = []

    def propose(num_speculative_tokens: int, sampled_token_ids: list[list[int]], *rest: Any) -> str:
        seen.append((num_speculative_tokens, sampled_token_ids, rest))
        return "drafts"

    runner.drafter = SimpleNamespace(propose=propose)
    assert switch.put_in(runner, "0.32.0", (2, 4)) == {"ngram", "off"}
    assert runner.drafter.propose(3, [[1], [2], [3, 4]], "more") == "drafts"
    assert seen == [(3, [[1], [], [3, 4]], ("more",))]


def test_counts_are_shared_between_processes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one maps and adds, another that maps the same file reads."""
    monkeypatch.setenv(counters.FOLDER, str(tmp_path))
    mine = counters.counts_of_this_process()
    mine.add("mix", 5, 2)
    mine.add("mix", 3, 0)
    (path,) = tmp_path.iterdir()
    assert counters.Counts(path).of("mix")[:6] == [2, 8, 2, 1, 1, 0]
    assert counters.Counts(path).of("off")[:3] == [0, 0, 0]


def test_the_page_survives_a_torn_file(tmp_path: Any) -> None:
    """A file that is not whole is left out, not an error on the engine's page."""
    (tmp_path / "1.counts").write_bytes(b"short")
    counters.Counts(tmp_path / "2.counts", create=True).add("ngram", 3, 1)
    drafted = next(iter(counters.Page(tmp_path).collect()))
    assert [(sample.labels, sample.value) for sample in drafted.samples] == [({"draft": "ngram"}, 1.0)]  # type: ignore[attr-defined]
