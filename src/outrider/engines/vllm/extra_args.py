"""The user's own engine flags: which are refused, and how the rest is written on the command line.

vLLM's parser takes ``_`` for ``-``, any unambiguous beginning of a flag, ``--no-`` forms, and ``--flag.key`` for a
member of a JSON flag; a refused flag is refused in each of these spellings.

Source: vLLM 0.32.0 `utils/argparse_utils.py` (FlexibleArgumentParser), argparse's `allow_abbrev`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import JsonValue

from outrider.core.errors import Problem

_DOOR = "Outrider binds the engine to loopback with a key of its own; `serve` says what clients reach."
_CODE = "It loads code into the engine."
_REACH = "It lets the engine load code, or reach files and hosts, beyond what this stack says."
_MEASURED = "Outrider needs it as it is, to stop the engine and to measure it."

# Flag → the stack's own key for it.
STACK_KEYS: Mapping[str, str] = {
    "model": "target.model",
    **dict.fromkeys(("revision", "code-revision", "tokenizer-revision"), "target.revision"),
    "served-model-name": "target.served_name",
    "dtype": "target.dtype",
    "kv-cache-dtype": "target.kv_cache_dtype",
    "max-model-len": "target.max_context_tokens",
    "chat-template": "target.chat_template",
    **dict.fromkeys(("speculative-config", "spec-method"), "draft.method"),
    "spec-model": "draft.model",
    "spec-tokens": "draft.draft_length",
    "tensor-parallel-size": "engine.tensor_parallel",
    "max-num-seqs": "engine.max_running_requests",
    "enforce-eager": "engine.enforce_eager",
    "enable-prefix-caching": "engine.prefix_cache",
    **dict.fromkeys(("gpu-memory-utilization", "device-memory-utilization"), "engine.memory_fraction"),
    "kv-cache-memory-bytes": "engine.kv_cache_gib (CPU: engine.cpu_kv_cache_gib)",
}
_SERVE_KEYS: Mapping[str, str] = {"host": "serve.host", "port": "serve.port", "api-key": "serve.keys"}

# Flag → why. Everything `plan` writes is here, which a test holds.
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("uds", "root-path", "middleware", "grpc", "grpc-port"), _DOOR),
    **{flag: f"{_DOOR} Clients' side is `{key}`." for flag, key in _SERVE_KEYS.items()},
    **dict.fromkeys(("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-cert-reqs", "ssl-ciphers"), _DOOR),
    **dict.fromkeys(("enable-ssl-refresh", "headless", "data-parallel-supervisor-port"), _DOOR),
    **dict.fromkeys(("data-parallel-external-lb", "data-parallel-hybrid-lb"), _DOOR),
    "data-parallel-multi-port-external-lb": _DOOR,
    **{flag: f"The stack has its own place for it: `{key}`." for flag, key in STACK_KEYS.items()},
    **dict.fromkeys(("trust-remote-code", "worker-cls", "worker-extension-cls", "scheduler-cls"), _CODE),
    **dict.fromkeys(("tool-parser-plugin", "reasoning-parser-plugin", "io-processor-plugin"), _CODE),
    **dict.fromkeys(("logits-processors", "model-class-overrides"), _CODE),
    **dict.fromkeys(("kv-transfer-config", "ec-transfer-config", "kv-events-config"), _REACH),
    **dict.fromkeys(("log-config-file", "allowed-local-media-path", "allowed-media-domains"), _REACH),
    **dict.fromkeys(
        ("enable-log-requests", "enable-log-outputs"), "It would write users' prompts into the log."
    ),
    "load-format": "Only safetensors are loaded: pickled weights run code when opened.",
    "hf-token": "Secrets on a command line are seen by every user of the machine: set HF_TOKEN in the environment.",
    "config": "It would bring in flags that are not checked; write them under `engine.extra_args`.",
    **dict.fromkeys(("shutdown-timeout", "disable-log-stats", "disable-uvicorn-access-log"), _MEASURED),
    "per-request-spec-decode-metrics": _MEASURED,
    "help": "The engine would print it and end.",
}
_SHORTER = frozenset({"tokenizer", "reasoning-parser"})  # flags of their own that begin a refused one
_KEY = re.compile(r"[a-z0-9]+([-_][a-z0-9]+)*(\.[\w.-]+)?", re.IGNORECASE)

# Members of JSON flags, and values, that name code to load.
_CODE_MEMBER = re.compile(r"(^|[._-])(plugin|module_path|cls|backend|qualname)$", re.IGNORECASE)
_CHOICES: Mapping[str, frozenset[str]] = {
    "distributed-executor-backend": frozenset({"mp", "ray", "uni", "external_launcher"})
}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(r"(^|_)(TOKEN|PAT|PWD)$|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL", re.IGNORECASE)
_REFUSED_ENV: Mapping[str, str] = {
    "VLLM_API_KEY": "Outrider makes a new key for each launch.",
    "VLLM_SERVER_DEV_MODE": "It opens routes that run any method of the engine.",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "It lets messages between processes run code.",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "It opens routes that load weights named by clients.",
    "VLLM_PLUGINS": "It would keep Outrider's plugin out.",
    **dict.fromkeys(("OUTRIDER_VLLM", "OUTRIDER_VLLM_SWITCH", "OUTRIDER_VLLM_COUNTS"), "Outrider sets it."),
    "VLLM_CPU_KVCACHE_SPACE": "The stack has its own place for it: `engine.cpu_kv_cache_gib`.",
}


def refused_extra_args(extra_args: Mapping[str, JsonValue]) -> list[Problem]:
    """One problem for each flag that Outrider sets itself or that opens the engine, and for each malformed one."""
    problems = (_judge_arg(key, value) for key, value in extra_args.items())
    return [problem for problem in problems if problem]


def refused_extra_env(extra_env: Mapping[str, str]) -> list[Problem]:
    """One problem for each variable that Outrider sets itself, that opens the engine, or that names a secret."""
    found = []
    for name, value in extra_env.items():
        path, rule = f"engine.extra_env.{name}", "extra-env-refused"
        if not _ENV_NAME.fullmatch(name) or "\0" in value:
            found.append(Problem(f"{name!r} is no variable", path, rule, "Letters, digits and _; no NUL."))
        elif why := _REFUSED_ENV.get(name):
            found.append(Problem(f"{name} must not be set here", path, rule, why))
        elif _SECRET_NAME.search(name):
            hint = f"Set {name} where you start Outrider: the engine inherits it."
            found.append(
                Problem(f"{name} looks like a secret, and a stack file is no place for one", path, rule, hint)
            )
    return found


def _judge_arg(key: str, value: JsonValue) -> Problem | None:
    path = f"engine.extra_args.{key}"
    if not _KEY.fullmatch(key):
        return Problem(
            f"{key!r} is no flag name",
            path,
            "extra-arg-form",
            "Without dashes in front: max-num-batched-tokens",
        )
    if flag := _refused_flag(key):
        said = f"--{key}" if key == flag else f"--{key} is --{flag}, which"
        return Problem(f"{said} is not yours to set", path, "extra-arg-refused", REFUSED[flag])
    if (member := _code_member(key, value)) or not _offered(key, value):
        said = f"{member!r} of --{key}" if member else f"{value!r} for --{key}"
        return Problem(f"{said} is not yours to set", path, "extra-arg-refused", _CODE)
    if "\0" in json.dumps(value) or "\\u0000" in json.dumps(value):
        return Problem("a value holds NUL", path, "extra-arg-form")
    items = value if isinstance(value, list) else [value]
    if value is None or any(
        isinstance(item, (list, dict)) or item is None for item in items if items is value
    ):
        return Problem(
            "a value is text, number, true or false, a mapping, or a list of plain values",
            path,
            "extra-arg-form",
        )
    if isinstance(value, list) and (not value or any(str(item).startswith("-") for item in value)):
        return Problem("a list must not be empty, nor an item begin with a dash", path, "extra-arg-form")
    return None


def _code_member(key: str, value: JsonValue) -> str:
    """The first member of a JSON flag, dotted or written out, that names code to load; '' if none does."""
    waiting: list[tuple[str, JsonValue]] = [(key.split(".", 1)[1] if "." in key else "", value)]
    while waiting:
        name, inner = waiting.pop()
        if name and _CODE_MEMBER.search(name):
            return name
        if isinstance(inner, dict):
            waiting.extend(inner.items())
    return ""


def _offered(key: str, value: JsonValue) -> bool:
    """Whether a flag that would also take the name of a class has one of its plain values."""
    choices = _CHOICES.get(key.lower().replace("_", "-"))
    return choices is None or value in choices


def _refused_flag(key: str) -> str | None:
    """The refused flag that vLLM's parser would take `key` for, or could."""
    name = key.lower().replace("_", "-").split(".", 1)[0]
    for spelling in (name, name.removeprefix("no-")):
        if spelling in REFUSED:
            return spelling
        if spelling not in _SHORTER and (longer := [flag for flag in REFUSED if flag.startswith(spelling)]):
            return longer[0]
    return None


def written(extra_args: Mapping[str, JsonValue]) -> list[str]:
    """The flags as arguments: true → ``--flag``, false → ``--no-flag``, mapping → JSON, list → several values."""
    arguments: list[str] = []
    for key, value in extra_args.items():
        if isinstance(value, bool):
            arguments.append(f"--{key}" if value else f"--no-{key}")
        elif isinstance(value, list):
            arguments += [f"--{key}", *(str(item) for item in value)]
        elif isinstance(value, dict):
            arguments.append(f"--{key}={json.dumps(value)}")
        else:
            arguments.append(f"--{key}={value}")
    return arguments
