"""Every error Outrider raises on purpose.

::

    OutriderError                    exit code, hint (what to do next)
    ├ StackError               10    carries `problems`: all of them at once, each with file, line and column
    ├ EngineError              11
    │ ├ EngineNotInstalled           names the extra or command that installs it
    │ ├ EngineVersionRefused         untried or refused version
    │ ├ UnsupportedFeature           this engine version cannot do what the stack asks
    │ ├ EngineStartFailed            carries the last lines of the engine's log
    │ └ EngineUnreachable
    ├ WeightsError             11    download, digest, conversion, disk full
    ├ RequestError             HTTP  400 · 401 · 403 · 404 · 405 · 408 · 413 · 415 · 429 · 431 · 502 · 503 · 504,
    │                                always an OpenAI error body
    ├ MeasurementError         12
    ├ TrainingError            13
    └ RenderError              14

1 is "a regression was found", 2 a usage error. Exit codes are mapped in `outrider.cli.main`, HTTP statuses in
`outrider.front.errors`, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass


def place_of(fault: BaseException) -> str:
    """Kind and place of a fault in our own code, never what it was about: ``ValueError in Credit.__post_init__:51``."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace else "?"
    return f"{type(fault).__name__} in {where}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a stack: where it stands, what it is, what to do.

    `path` is the dotted place in the stack (``draft.draft_length``); `line` and `column` are 1-based, 0 if unknown.
    `rule` is a stable short name (``pair-vocabulary``) that tests and users can search for.
    `severity` is ``error`` (refuses), ``warning`` (printed, does not refuse) or ``note`` (printed by `check` alone).
    """

    message: str
    path: str = ""
    rule: str = ""
    hint: str = ""
    severity: str = "error"
    file: str = ""
    line: int = 0
    column: int = 0

    def render(self) -> str:
        """One or two lines: ``stack.yaml:7:3: error: draft.method: … [rule]`` and an indented hint."""
        place = f"{self.file}:{self.line}:{self.column}: " if self.file and self.line else ""
        place = place or (f"{self.file}: " if self.file else "")
        subject = f"{self.path}: " if self.path else ""
        tag = f" [{self.rule}]" if self.rule else ""
        text = f"{place}{self.severity}: {subject}{self.message}{tag}"
        return f"{text}\n    → {self.hint}" if self.hint else text


class OutriderError(Exception):
    """Base of all deliberate errors; `hint` says what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class StackError(OutriderError):
    """The stack cannot be used. All its problems at once, in file order."""

    exit_code = 10

    def __init__(self, message: str, problems: tuple[Problem, ...] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class EngineError(OutriderError):
    """Something about the engine: missing, refused, failed, unreachable."""

    exit_code = 11


class EngineNotInstalled(EngineError):
    """No engine found where the stack says it is."""


class EngineVersionRefused(EngineError):
    """The engine's version is outside what Outrider drives."""


class UnsupportedFeature(EngineError):
    """The stack asks for something this engine version does not do."""


class EngineStartFailed(EngineError):
    """The engine ended, or was not ready in time; `log_tail` holds its last lines."""

    def __init__(self, message: str, *, hint: str = "", log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.log_tail = log_tail


class EngineUnreachable(EngineError):
    """The engine did not answer."""


class WeightsError(EngineError):
    """Weights could not be fetched, checked, converted or stored."""


class RequestError(OutriderError):
    """A request the front refuses. `kind` and `code` go into the OpenAI error body.

    Source: the error object of the OpenAI API reference (message, type, param, code).
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str = "",
        param: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param


class MeasurementError(OutriderError):
    """A measurement that must not be believed, with its reason."""

    exit_code = 12


class TrainingError(OutriderError):
    """Training could not start or go on."""

    exit_code = 13


class RenderError(OutriderError):
    """Manifests or values could not be rendered."""

    exit_code = 14
