"""Prompts that the target writes itself: given its chat template up to the user's turn, it writes what a user would say.

Source: Xu et al. 2024, arXiv:2406.08464 (Magpie). An opening ("Write a Python function that") steers what is asked for; the
generator that draws it is seeded, the target's own sampling is not.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from outrider.core.errors import TrainingError
from outrider.train.generation import Refused, Sampling, Target, Written
from outrider.train.held_out import HeldOut
from outrider.train.openings import DEFAULT_OPENINGS
from outrider.train.template import ChatTemplate, Ids, Messages, opening_ids

PROMPTS_PER_REQUEST = 8
# A request ends with its longest text: more of them than the engine runs at a time keep it full.
AHEAD = 2
PATIENCE = 400
USABLE_SHARE = 0.02
FEWEST_ADDED = 8


@dataclass(frozen=True, slots=True)
class UserTurns:
    """How the target writes what a user says: `temperature` (0 would repeat one prompt), the most tokens, the fewest
    characters kept, and texts that are held out."""

    temperature: float = 1.0
    max_tokens: int = 160
    min_chars: int = 13
    held_out: tuple[str, ...] = ()

    def sampling(self, template: ChatTemplate) -> Sampling:
        """Plain sampling that ends where the template ends a user's turn."""
        return Sampling(self.max_tokens, self.temperature, True, template.user_end, template.stop_texts)


@dataclass(frozen=True, slots=True)
class SelfPlay:
    """What self-written prompts are made of.

    `opening_share` of them begin with one of `openings` (one that stands there twice is drawn twice as often), the rest as the
    target likes. `two_turns_share` of them get a second user turn, written by the target after its first answer.
    """

    user: UserTurns = field(default_factory=UserTurns)
    system: str | None = None
    openings: tuple[str, ...] = DEFAULT_OPENINGS
    opening_share: float = 0.6
    two_turns_share: float = 0.2
    seed: int = 0


@dataclass(slots=True)
class Seen:
    """Prompts there are already, so that none is taken twice; case and white space make no difference."""

    texts: set[int] = field(default_factory=set)

    def is_new(self, *turns: str) -> bool:
        """Whether these user turns are new; they are not from now on."""
        key = hash(tuple(" ".join(turn.casefold().split()) for turn in turns))
        new = key not in self.texts
        self.texts.add(key)
        return new


@dataclass(frozen=True, slots=True)
class Played:
    """One request's prompts, as records to write, and what was dropped of it."""

    prompts: list[dict[str, object]]
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Begin:
    opening: str
    ids: Ids
    two_turns: bool


async def self_play(
    target: Target, template: ChatTemplate, wanted: int, play: SelfPlay, seen: Seen, number: int = 0
) -> AsyncGenerator[Played, None]:
    """Until `wanted` prompts are written: what came of each request. `number`: prompts tried before, by an earlier run.

    Raises:
        TrainingError: the template begins with the user's text, or hardly any prompt can be used.
    """
    if not template.user_start:
        raise TrainingError(
            f"the chat template of {target.access.model} has nothing before the user's text, so the target cannot write prompts",
            hint="Give prompts of your own.",
        )
    starts = await _starts(target, template, play)
    held = HeldOut(play.user.held_out)
    sampling = play.user.sampling(template)
    kept = tried = 0
    window = _Window()
    running: dict[asyncio.Task[list[Written]], list[_Begin]] = {}
    try:
        while kept < wanted:
            rate = max(kept / tried, 0.1) if tried else 0.8
            missing = round((wanted - kept) / rate) + 1 - sum(map(len, running.values()))
            while missing > 0 and sum(map(len, running.values())) < AHEAD * target.access.concurrency:
                begun = [_begin(starts, play, number + at) for at in range(min(PROMPTS_PER_REQUEST, missing))]
                number += len(begun)
                missing -= len(begun)
                task = asyncio.ensure_future(target.write([begin.ids for begin in begun], sampling))
                running[task] = begun
            for task in (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[0]:
                begun = running.pop(task)
                try:
                    played = _judge(begun, task.result(), play, seen, held, wanted - kept)
                except Refused as refusal:
                    played = Played([], {str(refusal): len(begun)})
                kept += len(played.prompts)
                tried += len(begun)
                window.add(played, len(begun))
                yield played
                if kept >= wanted:
                    break
            if kept < wanted and window.tried >= PATIENCE:
                window.refuse_barren()
                window = _Window()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def user_text(opening: str, written: Written) -> str:
    """What the user says: the opening and what follows, a block of code closed."""
    text = f"{opening}{written.text}".strip()
    return f"{text}\n```" if text.count("```") % 2 else text


def unusable(text: str, opening: str, written: Written, user: UserTurns, held: HeldOut) -> str:
    """Why a self-written user turn is not taken, or an empty string."""
    if written.finish_reason != "stop":
        return f"user turn not finished within {user.max_tokens} tokens"
    if len(text) < user.min_chars:
        return f"user turn shorter than {user.min_chars} characters"
    if opening and len(written.text.strip()) < FEWEST_ADDED:
        return "user turn adds nothing to its opening"
    if "\ufffd" in text or "\0" in text:
        return "user turn with broken characters"
    return "too near a held-out prompt" if held.is_near(text) else ""


def _judge(
    begun: list[_Begin], written: list[Written], play: SelfPlay, seen: Seen, held: HeldOut, most: int
) -> Played:
    """The first `most` usable prompts of a request; what comes after them is not looked at."""
    prompts: list[dict[str, object]] = []
    dropped: Counter[str] = Counter()
    system = _system(play)
    for begin, one in zip(begun, written, strict=True):
        if len(prompts) == most:
            break
        text = user_text(begin.opening, one)
        reason = unusable(text, begin.opening, one, play.user, held)
        if not reason and not seen.is_new(text):
            reason = "user turn written before"
        if reason:
            dropped[reason] += 1
            continue
        messages = [*system, {"role": "user", "content": text}]
        more = {"turns": 2} if begin.two_turns else {}
        prompts.append({"messages": messages, "kind": "selfplay", **more})
    return Played(prompts, dropped)


async def _starts(target: Target, template: ChatTemplate, play: SelfPlay) -> dict[str, Ids]:
    """Tokens up to the end of each opening; of the empty one, to where the user's text begins."""
    openings = dict.fromkeys(opening.rstrip(" ") for opening in play.openings if opening.strip())
    starts = {"": template.user_start}
    for opening in openings if play.opening_share else ():
        starts[opening] = await opening_ids(target, _system(play), opening)
    return starts


def _begin(starts: Mapping[str, Ids], play: SelfPlay, number: int) -> _Begin:
    """How the prompt of this number begins."""
    draw = random.Random(f"{play.seed}/{number}")  # noqa: S311  (a choice that can be made again, not a secret)
    opened = len(starts) > 1 and draw.random() < play.opening_share
    opening = draw.choice([text.rstrip(" ") for text in play.openings if text.strip()]) if opened else ""
    return _Begin(opening, starts[opening], draw.random() < play.two_turns_share)


def _system(play: SelfPlay) -> Messages:
    return [{"role": "system", "content": play.system}] if play.system else []


@dataclass(slots=True)
class _Window:
    """The prompts tried last."""

    tried: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, played: Played, tried: int) -> None:
        self.tried += tried
        self.kept += len(played.prompts)
        self.dropped.update(played.dropped)

    def refuse_barren(self) -> None:
        """Raises TrainingError where hardly any of them could be used."""
        if self.kept >= USABLE_SHARE * self.tried:
            return
        most = ", ".join(f"{count} {reason}" for reason, count in self.dropped.most_common(3))
        raise TrainingError(
            f"only {self.kept} of {self.tried} self-written prompts can be used ({most})",
            hint="Is the target an instruct model, with its own chat template? Else raise the temperature of its user turns, "
            "or give prompts of your own.",
        )
