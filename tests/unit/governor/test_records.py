"""Records, ladders and settings refuse what cannot be; names are the plugin's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.governor import ladder
from outrider.governor.ladder import Ladder, Rung, ladder_of
from outrider.governor.settings import PolicySettings, problems_of, settings_from
from outrider.governor.snapshot import Credit, Snapshot, StartProbe, StepReading
from outrider_vllm import drafts


def test_the_names_are_the_plugins() -> None:
    """All of its drafts but `none`, which is a server without any."""
    assert set(ladder.NAMES) == drafts.NAMES - {"none"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Credit("ngram", 2.0, 1.0), "ended before it started"),
        (lambda: Credit("ngram", 0.0, 1.0, drafts=1, proposed=3, accepted=4), "do not fit each other"),
        (lambda: Credit("ngram", 0.0, 1.0, drafts=4, proposed=3), "do not fit each other"),
        (lambda: Credit("ngram", 0.0, 1.0, drafts=4, proposed=12, steps=3), "4 drafts in 3 steps"),
        (lambda: Credit("ngram", 0.0, 1.0, drafts=-1), "drafts cannot be -1"),
        (lambda: Credit("ngram", 0.0, 1.0, requests=0), "one request at least"),
        (lambda: Credit("ngram", 0.0, math.nan), "ended_s cannot be nan"),
        (lambda: Credit("ngram", 0.0, 1.0, decode_s=math.inf), "decode_s cannot be inf"),
        (lambda: Credit("ngram", 0.0, 1.0, alike_ratio=1.1), "is a share"),
        (lambda: StepReading("ngram", 0.0, 1.0, 0.0), "a step takes time"),
        (lambda: StepReading("ngram", 0.0, 0.0, 1.0), "somebody runs"),
        (lambda: StepReading("ngram", 0.0, 1.0, -1.0), "step_s cannot be -1.0"),
        (lambda: StartProbe("ngram", 3, 4), "more was accepted than proposed"),
        (lambda: Snapshot(math.nan), "at_s cannot be nan"),
        (lambda: Snapshot(1.0, running=-1.0), "running cannot be -1.0"),
        (lambda: Snapshot(1.0, waiting=10**13), "waiting cannot be"),
        (lambda: Rung("eagle"), "'eagle' is no draft: eagle3, p-eagle"),
        (lambda: Rung("none"), "'none' is no draft"),
        (lambda: Rung("eagle3", 0.9), "between 1 and 65"),
        (lambda: Rung("eagle3", math.nan), "between 1 and 65"),
        (lambda: Rung("eagle3", break_even=((4.0, 1.2), (1.0, 1.1))), "by rising batch"),
        (lambda: Rung("eagle3", break_even=((4.0, 1.2), (4.0, 1.3))), "each once"),
        (lambda: Rung("eagle3", break_even=((4.0, 0.0),)), "positive and finite"),
        (lambda: Ladder(()), "the last rung, and no other"),
        (lambda: Ladder((Rung("eagle3"), Rung("ngram"))), "the last rung, and no other"),
        (lambda: Ladder((Rung("off"), Rung("ngram"), Rung("off"))), "on one rung only"),
        (lambda: Ladder((Rung("warm"), Rung("off"))), "the last rung, and no other"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], words: str) -> None:
    """With words that say which figure."""
    with pytest.raises(ValueError, match=words):
        make()


def test_a_clock_may_begin_anywhere() -> None:
    """Monotonic clocks do: moments below zero are moments."""
    assert Credit("off", -5.0, -4.0).ended_s == -4.0
    assert Snapshot(-4.0).at_s == -4.0


def test_the_usual_ladders() -> None:
    """A head and mix fall to n-gram, then to none; a lookup straight to none; the floor may be warm."""
    assert ladder_of(Rung("p-eagle", 4.3)).names == ("p-eagle", "ngram", "off")
    assert ladder_of(Rung("mix")).names == ("mix", "ngram", "off")
    assert ladder_of(Rung("ngram")).names == ("ngram", "off")
    assert ladder_of(Rung("eagle3"), "warm").floor == "warm"


def test_places_on_a_ladder() -> None:
    """Above in order of wish, below nearest first."""
    three = ladder_of(Rung("eagle3"))
    assert [rung.draft for rung in three.above("off")] == ["eagle3", "ngram"]
    assert [rung.draft for rung in three.below("eagle3")] == ["ngram", "off"]
    assert three.top == "eagle3"
    assert "suffix" not in three
    with pytest.raises(KeyError):
        three["suffix"]


def test_a_worthless_baseline_is_none() -> None:
    """AL 1.04 is no yardstick; 1.06 is."""
    assert Rung("eagle3", 1.04).baseline_gain is None
    assert Rung("eagle3", 1.06).baseline_gain == pytest.approx(0.06)


def test_every_setting_has_a_default_within_its_bounds_and_says_what_it_does() -> None:
    """So that the page of settings can be checked against them."""
    assert problems_of({one.name: one.default for one in fields(PolicySettings)}) == []
    assert all(one.metadata["about"].endswith((".", "…")) for one in fields(PolicySettings))
    assert settings_from({}) == PolicySettings()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dwel_s": 3}, "dwel_s is no setting; did you mean dwell_s?"),
        ({"speed": 3}, "speed is no setting"),
        ({"dwell_s": "soon"}, "dwell_s is a number"),
        ({"dwell_s": True}, "dwell_s is a number"),
        ({"dwell_s": 0}, "dwell_s lies between 1 and 3600, not at 0"),
        ({"dwell_s": math.nan}, "dwell_s is a number"),
        ({"sustained_requests": 2.5}, "sustained_requests is a whole number"),
        ({"trials": 1}, "trials is true or false"),
        ({"min_requests": 40}, r"min_requests \(40\) is more than window_requests \(16\)"),
        ({"probe_share_min": 0.5}, r"probe_share_min \(0.5\) is more than probe_share_max"),
    ],
)
def test_settings_refuse_what_they_do_not_know(given: dict[str, object], words: str) -> None:
    """Unknown keys, wrong types, bounds and contradictions; the record itself refuses them too."""
    with pytest.raises(ValueError, match=words):
        settings_from(given)
    if given.keys() <= {one.name for one in fields(PolicySettings)}:
        with pytest.raises(ValueError, match=words):
            PolicySettings(**given)  # type: ignore[arg-type]  # what is refused


def test_all_that_is_wrong_with_settings_is_told_at_once() -> None:
    """In the order of the file."""
    assert [key for key, _ in problems_of({"b": 1, "dwell_s": -1, "trials": "no"})] == [
        "b",
        "dwell_s",
        "trials",
    ]


def test_whole_numbers_may_be_written_with_a_point() -> None:
    """``6.0`` is six: settings made from text keep their types."""
    made = settings_from({"sustained_requests": 6.0, "dwell_s": 20})
    assert isinstance(made.sustained_requests, int)
    assert isinstance(made.dwell_s, float)


@given(
    st.dictionaries(
        st.text(max_size=20), st.one_of(st.none(), st.text(), st.floats(), st.lists(st.integers()))
    )
)
def test_nothing_given_as_settings_crashes(given_: dict[str, object]) -> None:
    """It is refused in words, or made."""
    if problems_of(given_):
        with pytest.raises(ValueError, match=r"."):
            settings_from(given_)
    else:
        settings_from(given_)
