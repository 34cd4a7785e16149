"""What a draft would be worth, before its weights are there: step times of the shapes, acceptance that somebody states.

A step at batch b with draft length K takes T(b, K), whatever the weights say; how many tokens it yields, AL(K), depends on the
traffic. So speed-up = AL(K) · T(b, 0)/T(b, K). Rates are *unconditional*: position i counts the drafts whose first i tokens
were all accepted, of all drafts, so they never rise, and AL(K) = 1 + the sum of the first K.

On a GPU the engine draws the stated acceptance itself and everything is measured (`synthetic`); a CPU build cannot, so there the
step times alone are measured and the speed-up is reckoned (`modelled`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from outrider.bench.arms import ArmPlan
from outrider.bench.document import ForecastInfo, StatedRates
from outrider.core.acceptance import acceptance_length_of
from outrider.core.errors import MeasurementError
from outrider.measure.prompts import Prompt, PromptSet
from outrider.stack.models import METHODS_WITH_WEIGHTS, Forecast, Stack
from outrider.stack.stand_in_tokenizer import CHARACTERS_PER_TOKEN

HOW = "Such as 0.82,0.68,0.56: how often position 1, 2, 3 is accepted, of all drafts. docs/forecast.md has published ones."
_LETTERS = "etaoinshrdlucmfwygpbvk"  # by frequency in English; only so that prompts look like text


@dataclass(frozen=True, slots=True)
class Stated:
    """Acceptance that somebody states for a method: unconditional rate of each position (0 to 1), and where it is from.

    `constant`: the rates were derived from one AL, with the same chance at each position, and go on so beyond the last.
    """

    rates: tuple[float, ...]
    source: str = ""
    constant: bool = False

    def length(self, draft_length: int) -> float:
        """AL(K). Raises MeasurementError for more positions than are stated."""
        return acceptance_length_of(self.for_length(draft_length))

    def for_length(self, draft_length: int) -> tuple[float, ...]:
        """The first K rates. Raises MeasurementError if fewer are stated."""
        if self.constant and self.rates:
            return tuple(self.rates[0] ** i for i in range(1, draft_length + 1))
        if draft_length > len(self.rates):
            raise MeasurementError(
                f"a draft length of {draft_length} needs {draft_length} rates, {len(self.rates)} are given",
                hint=HOW,
            )
        return self.rates[:draft_length]


def read_rates(text: str) -> tuple[float, ...]:
    """``0.82,0.68,0.56`` as rates. Raises MeasurementError: not numbers, outside 0 to 1, or rising."""
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise MeasurementError(f"{text!r} is no list of rates", hint=HOW) from None
    for i, rate in enumerate(rates):
        if not 0 <= rate <= 1:
            raise MeasurementError(f"the rate of position {i + 1} is {rate:g}, not within 0 and 1", hint=HOW)
        if i and rate > rates[i - 1]:
            raise MeasurementError(
                f"position {i + 1} ({rate:g}) cannot be accepted more often than position {i} ({rates[i - 1]:g})",
                hint="These are shares of all drafts. If yours are of the drafts that came that far, multiply them up.",
            )
    return rates


def rates_from_length(length: float, draft_length: int) -> tuple[float, ...]:
    """Rates of K positions whose AL is `length`, each position kept with the same probability r given the one before.

    r + r² + … + r^K = AL - 1, solved by bisection: the one-parameter model of Leviathan et al., 2023 (arXiv:2211.17192), where
    acceptance does not depend on the position. Raises MeasurementError: AL outside [1, K + 1].
    """
    if draft_length < 1 or not 1 <= length <= draft_length + 1:
        raise MeasurementError(
            f"an acceptance length of {length:g} is impossible with {draft_length} draft tokens",
            hint=f"It lies between 1 and {draft_length + 1}, the bonus token included.",
        )
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**i for i in range(1, draft_length + 1)) < length - 1:
            low = middle
        else:
            high = middle
    return tuple(high**i for i in range(1, draft_length + 1))


def read_stated(specs: Sequence[str], own_method: str, source: str) -> dict[str, Stated]:
    """``[METHOD=]RATES`` or ``[METHOD=]AL@K`` each, by method; without a method the stack's own. Raises MeasurementError."""
    stated: dict[str, Stated] = {}
    for spec in specs:
        method, _, text = spec.rpartition("=")
        method = method or own_method
        if method not in METHODS_WITH_WEIGHTS:
            words = "of a draft that always drafts: eagle3, p-eagle or draft-model"
            raise MeasurementError(
                f"acceptance is stated {words}; not of {method}", hint="Name the method: eagle3=0.8,0.6,0.5"
            )
        if method in stated:
            raise MeasurementError(
                f"acceptance of {method} is stated twice", hint="Once is enough: the longest K's rates."
            )
        stated[method] = _one(text, source)
    return stated


def _one(text: str, source: str) -> Stated:
    length, at, draft_length = text.partition("@")
    if not at:
        return Stated(read_rates(text), source)
    try:
        rates = rates_from_length(float(length), int(draft_length))
    except ValueError:
        raise MeasurementError(
            f"{text!r} is no AL@K", hint="Such as 3.06@3: an AL of 3.06 at K = 3."
        ) from None
    derived = f"derived from AL {length} at K = {draft_length}, the same chance at each position"
    return Stated(rates, f"{source}; {derived}" if source else derived, constant=True)


def forecast_stack(stack: Stack) -> Stack:
    """The stack with dummy weights and no rates of its own: those are each arm's."""
    return stack.model_copy(update={"forecast": Forecast(dummy_weights=True)})


def forecast_arms(
    arms: Sequence[ArmPlan], stated: Mapping[str, Stated], *, synthetic: bool
) -> tuple[ArmPlan, ...]:
    """Each arm with dummy weights, and, if `synthetic`, the rates that are stated of its method.

    Raises MeasurementError: an arm whose method or length nobody stated acceptance of.
    """
    return tuple(_arm(arm, stated, synthetic) for arm in arms)


def _arm(arm: ArmPlan, stated: Mapping[str, Stated], synthetic: bool) -> ArmPlan:
    forecast = Forecast(dummy_weights=True)
    if not arm.is_baseline:
        given = of_arm(arm, stated)
        rates = list(given.for_length(arm.stack.draft.length))
        forecast = Forecast(
            dummy_weights=True, position_rates=rates if synthetic else None, source=given.source or None
        )
    return replace(arm, stack=arm.stack.model_copy(update={"forecast": forecast}))


def of_arm(arm: ArmPlan, stated: Mapping[str, Stated]) -> Stated:
    """What is stated of an arm's method. Raises MeasurementError if nothing is."""
    method = arm.stack.draft.method
    if method not in stated:
        if method not in METHODS_WITH_WEIGHTS:
            raise MeasurementError(
                f"{arm.name} drafts where it finds something in the text, and random weights write no text",
                hint="Bench it with the real weights: outrider bench.",
            )
        raise MeasurementError(
            f"no acceptance is stated for {arm.name}", hint=f"--acceptance {method}=0.82,0.68,… {HOW}"
        )
    return stated[method]


def forecast_prompts(tokens: int, count: int, seed: int = 1) -> PromptSet:
    """`count` different prompts of `tokens` tokens of the stand-in tokenizer; the same for the same arguments."""
    draw = random.Random(seed)  # noqa: S311  (text, not secrets)
    weights = [1 / (i + 2) for i in range(len(_LETTERS))]
    size = tokens * CHARACTERS_PER_TOKEN
    prompts = []
    for number in range(count):
        text = ""
        while len(text) < size:
            text += "".join(draw.choices(_LETTERS, weights, k=draw.randint(2, 9))) + " "
        prompts.append(Prompt(f"forecast/{number}", (text[:size],)))
    found = PromptSet(f"forecast-{tokens}", tuple(prompts), "generated", "")
    return replace(found, sha256=found.prompts_sha256)


def info_of(stated: Mapping[str, Stated], *, synthetic: bool) -> ForecastInfo:
    """What the run's document keeps of the stated acceptance."""
    return ForecastInfo(
        stated={
            method: StatedRates(rates=list(one.rates), source=one.source, constant=one.constant)
            for method, one in stated.items()
        },
        synthetic=synthetic,
    )


def stated_of(info: ForecastInfo) -> dict[str, Stated]:
    """The stated acceptance out of a run's document."""
    return {method: Stated(tuple(one.rates), one.source, one.constant) for method, one in info.stated.items()}
