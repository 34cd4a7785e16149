"""Colours and markers: one of each an arm, the same in every picture, readable without seeing colour.

The hues are Okabe and Ito's, darkened for a light page and lightened for a dark one, so that each keeps a contrast of 3 : 1
with its background (WCAG 2.2, 1.4.11). Source: Okabe and Ito, Color Universal Design (2008).
Pictures are drawn once with the light hex codes; the page replaces each by its CSS variable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from outrider.bench.document import BASELINE, Arm

Dash = Literal["-", "--", ":", "-."]


@dataclass(frozen=True, slots=True)
class Ink:
    """A CSS variable with its two colours."""

    name: str
    light: str
    dark: str


@dataclass(frozen=True, slots=True)
class Look:
    """How one arm is drawn: CSS variable `ink.name`, matplotlib marker and dash."""

    ink: Ink
    marker: str
    dash: Dash


TEXT = Ink("ink", "#1b1f24", "#e6e8eb")
MUTED = Ink("muted", "#59616b", "#a3abb5")
GRID = Ink("grid", "#e3e6ea", "#31363d")
PAPER = Ink("paper", "#fffffe", "#15181c")
GOOD = Ink("good", "#0b6e4f", "#4fcf9f")
BAD = Ink("bad", "#b3261e", "#ff8a80")
WARN = Ink("warn", "#8a5a00", "#f0b94d")
BASE = Ink("arm-0", "#5b6470", "#b4bcc6")
ARMS = (
    Ink("arm-1", "#0068a8", "#5bb4ee"),
    Ink("arm-2", "#c2500a", "#ff9a57"),
    Ink("arm-3", "#00845f", "#3fd0a4"),
    Ink("arm-4", "#a03c7d", "#ea9ccb"),
    Ink("arm-5", "#8f6b00", "#e8c547"),
    Ink("arm-6", "#5b4bb7", "#b3a6ff"),
    Ink("arm-7", "#007f92", "#5fd3e3"),
)
INKS = (TEXT, MUTED, GRID, PAPER, GOOD, BAD, WARN, BASE, *ARMS)
_MARKERS = ("s", "D", "^", "v", "P", "X", "h")
_DASHES: tuple[Dash, ...] = ("-", "--", ":", "-.")


def looks(arms: Iterable[Arm | str]) -> dict[str, Look]:
    """The look of each arm by name, in the run's order. The baseline is grey with a round marker."""
    found: dict[str, Look] = {}
    place = 0
    for arm in arms:
        name = arm if isinstance(arm, str) else arm.name
        if name == BASELINE:
            found[name] = Look(BASE, "o", "-")
        elif name not in found:
            turn = place // len(ARMS)
            found[name] = Look(
                ARMS[place % len(ARMS)],
                _MARKERS[(place + turn) % len(_MARKERS)],
                _DASHES[turn % len(_DASHES)],
            )
            place += 1
    return found


def css_variables(scheme: str) -> str:
    """``--ink:#1b1f24;…`` for `scheme` ``light`` or ``dark``."""
    return "".join(f"--{ink.name}:{ink.light if scheme == 'light' else ink.dark};" for ink in INKS)
