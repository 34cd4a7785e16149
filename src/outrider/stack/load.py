"""A stack file -> `Stack`, or every problem at once, each with file, line and column.

1. YAML with positions (`yaml_source`), 2. old names anywhere (`old_names`), 3. the models (`models`), in sentences
(`sentences`), 4. fields that only make sense together (`fields`), 5. paths relative to the file's folder made absolute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ValidationError

from outrider.core.errors import Problem, StackError
from outrider.stack.fields import judge_sections, sections_of
from outrider.stack.models import ApiKey, Draft, Engine, Forecast, Serve, Stack, Target
from outrider.stack.old_names import judge_old_names
from outrider.stack.policy import Policy
from outrider.stack.sentences import sentence
from outrider.stack.yaml_source import MAX_BYTES, Document, read_document
from outrider.stack.yaml_source import Path as Keys

BUILT_IN = "smollm2-135m"
_SECTIONS: dict[str, type[BaseModel]] = {
    "target": Target,
    "draft": Draft,
    "engine": Engine,
    "serve": Serve,
    "forecast": Forecast,
    "policy": Policy,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of a file. `stack` is None where it has no valid form; with problems it must not be served."""

    name: str
    stack: Stack | None
    problems: tuple[Problem, ...]
    document: Document

    def located(self, problem: Problem) -> Problem:
        """`problem` with the line and column of the key it is about."""
        if problem.line or not problem.path:
            return problem
        place = self.document.place(tuple(problem.path.split(".")))
        return replace(problem, file=self.name, line=place.line, column=place.column)


def load_stack(path: Path | None) -> Stack:
    """The stack in file `path`; None: the built-in one.

    Raises:
        StackError: the file cannot be read, or has problems; `problems` holds all of them in file order.
    """
    return usable(read_stack(path))


def read_stack(path: Path | None) -> Reading:
    """As `load_stack`, but problems are returned beside the stack, so that more can be found and told at once.

    Raises:
        StackError: the file cannot be read.
    """
    if path is None:
        return _read(built_in_text(), f"built-in {BUILT_IN}.yaml")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = Problem("not UTF-8 text", rule="syntax", file=str(path), line=line, column=column)
        raise StackError(f"{path} is not a stack.", (problem,), hint="Save it as UTF-8.") from None
    except OSError as error:
        problem = Problem(error.strerror or str(error), rule="unreadable", file=str(path))
        raise StackError(f"{path} cannot be read.", (problem,), hint="Examples are in examples/.") from None
    reading = _read(text, str(path))
    return replace(reading, stack=reading.stack and _resolved(reading.stack, path.absolute().parent))


def built_in_text() -> str:
    """The built-in stack's YAML."""
    return (resources.files("outrider") / "data" / "stacks" / f"{BUILT_IN}.yaml").read_text(encoding="utf-8")


def load_stack_text(text: str, name: str) -> Stack:
    """The stack that `text` describes; `name` stands for the file in errors. Relative paths stay as they are.

    Raises:
        StackError: with every problem, in file order.
    """
    return usable(_read(text, name))


def load_keys(path: Path) -> list[ApiKey]:
    """The API keys in a file that holds a list like `serve.keys`.

    Raises:
        StackError: the file cannot be read, or holds something else; keys are not repeated in the message.
    """
    hint = "`outrider key new` prints what it should hold."
    try:
        with path.open("rb") as file:
            document = read_document(file.read(MAX_BYTES + 1).decode("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise StackError(f"{path} cannot be used: {reason}.", hint=hint) from None
    if document.problems or not isinstance(document.value, list):
        raise StackError(f"{path} cannot be used: it is no list like `serve.keys`.", hint=hint)
    try:
        return [ApiKey.model_validate(one) for one in document.value]
    except ValidationError as error:
        number = len(error.errors())  # what stands there may be a key, and is not shown
        raise StackError(
            f"{path} cannot be used: {number} of its values are no name or SHA-256.", hint=hint
        ) from None


def usable(reading: Reading) -> Stack:
    """The stack of a reading that found nothing wrong. Raises StackError with every problem otherwise."""
    if reading.stack is None or reading.problems:
        count = f"{len(reading.problems)} problem{'s' if len(reading.problems) != 1 else ''}"
        hint = "Every key is described in docs/stack.md; `outrider check` says all that is wrong with a file at once."
        raise StackError(f"{reading.name}: {count}.", reading.problems, hint=hint)
    return reading.stack


def _read(text: str, name: str) -> Reading:
    document = read_document(text, name)
    problems = list(document.problems)
    stack: Stack | None = None
    if isinstance(document.value, dict):
        old, known = judge_old_names(document)
        stack, invalid = _validated(document, known)
        problems += [*old, *invalid, *_judge_fields(document, stack)]
    elif not problems:
        problems.append(
            document.problem((), "a stack is a block of keys: `apiVersion: …`, `target: …`", "syntax")
        )
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column))
    return Reading(name, stack, tuple(ordered), document)


def _validated(document: Document, known: set[Keys]) -> tuple[Stack | None, list[Problem]]:
    """The model, or what is wrong; errors about `known` paths or below them were told already."""
    try:
        return Stack.model_validate(document.value), []
    except ValidationError as error:
        problems = []
        for detail in error.errors(include_url=False):
            path = _path_of(detail["loc"], document)
            if any(path[: len(told)] == told for told in known):
                continue
            message, hint = sentence(detail, Stack)
            rule = "unknown-key" if detail["type"] == "extra_forbidden" else "invalid"
            problems.append(document.problem(path, message, rule, hint))
        return None, problems


def _path_of(location: tuple[int | str, ...], document: Document) -> Keys:
    """pydantic's location without the parts that only it knows (names of union members)."""
    path: Keys = ()
    for i, part in enumerate(location):
        if (*path, part) in document.values or i == len(location) - 1:
            path = (*path, part)
    return path


def _judge_fields(document: Document, stack: Stack | None) -> list[Problem]:
    sections = sections_of(stack) if stack else _valid_sections(document.value)
    return [
        document.problem(path, message, rule, hint) for path, message, rule, hint in judge_sections(sections)
    ]


def _valid_sections(value: object) -> dict[str, object]:
    """Sections that are right in themselves, so that their rules are judged although the file is refused."""
    sections: dict[str, object] = {}
    for name, model in _SECTIONS.items():
        given = value.get(name) if isinstance(value, dict) else None
        try:
            if given is not None:
                sections[name] = model.model_validate(given)
            elif name in ("engine", "serve"):
                sections[name] = model()
        except ValidationError:
            continue
    return sections


def _resolved(stack: Stack, folder: Path) -> Stack:
    """Relative paths are meant from the stack file's folder, wherever the command runs."""
    target = stack.target.model_copy(
        update={
            "model": _model_path(stack.target.model, folder),
            "chat_template": _from(folder, stack.target.chat_template),
        }
    )
    draft = stack.draft.model_copy(
        update={"model": stack.draft.model and _model_path(stack.draft.model, folder)}
    )
    engine = stack.engine
    if engine.python and "/" in engine.python:
        # not resolved further: the `python` of a virtual environment is a link that must stay one
        engine = engine.model_copy(update={"python": _from(folder, engine.python)})
    return stack.model_copy(update={"target": target, "draft": draft, "engine": engine})


def _model_path(model: str, folder: Path) -> str:
    """Hub ids and packages stay; folders and GGUF files become absolute."""
    if model.startswith(("./", "../", "~/")) or (model.endswith(".gguf") and not model.startswith("pypi:")):
        return str((folder / Path(model).expanduser()).resolve())
    return model


def _from(folder: Path, path: str | None) -> str | None:
    return str(folder / Path(path).expanduser()) if path else path
