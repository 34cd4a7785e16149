"""Extra engine flags: nothing that Outrider sets gets through in any spelling, the rest is written as meant."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from outrider.engines.vllm.extra_args import (
    REFUSED,
    STACK_KEYS,
    refused_extra_args,
    refused_extra_env,
    written,
)
from outrider.stack.models import Stack
from outrider.stack.sentences import known_keys


@pytest.mark.parametrize(
    ("key", "flag"),
    [
        ("host", "host"),
        ("api-key", "api-key"),
        ("api_key", "api-key"),
        ("api", "api-key"),
        ("speculative_config", "speculative-config"),
        ("speculative-config.num_speculative_tokens", "speculative-config"),
        ("spec", "speculative-config"),
        ("no-enable-prefix-caching", "enable-prefix-caching"),
        ("no_trust_remote_code", "trust-remote-code"),
        ("trust", "trust-remote-code"),
        ("SSL-KEYFILE", "ssl-keyfile"),
        ("ud", "uds"),
        ("load-format", "load-format"),
        ("hf-token", "hf-token"),
        ("config", "config"),
    ],
)
def test_refused_in_every_spelling(key: str, flag: str) -> None:
    """Underscores, beginnings, negations and members of a refused flag are refused, and the flag is named."""
    problems = refused_extra_args({key: "x"})
    assert [problem.rule for problem in problems] == ["extra-arg-refused"]
    assert f"--{flag}" in problems[0].message
    assert (" is --" in problems[0].message) is (key != flag)
    assert problems[0].path == f"engine.extra_args.{key}"
    assert problems[0].hint


def test_a_flag_that_the_stack_has_names_its_key() -> None:
    """Each flag with a place of its own in the stack is refused with that key, and the key exists."""
    for flag, where in STACK_KEYS.items():
        section, _, key = where.partition(" ")[0].partition(".")
        assert key in known_keys(Stack, (section,)), where
        assert f"`{where}`" in refused_extra_args({flag: 1})[0].hint
    assert "`serve.port`" in refused_extra_args({"port": 1})[0].hint


@pytest.mark.parametrize(
    "key",
    [
        "max-num-batched-tokens",
        "tokenizer",
        "reasoning-parser",
        "compilation-config.mode",
        "quantization",
        "seed",
    ],
)
def test_what_is_the_users_passes(key: str) -> None:
    """Flags that Outrider does not set pass, those included that begin like refused ones."""
    assert refused_extra_args({key: 1}) == []


@pytest.mark.parametrize("key", ["--host", "host=1", "a b", "", "-q", "x\n--host", "x--host"])
def test_keys_that_are_no_names_are_refused(key: str) -> None:
    """A key that could write more than one flag is refused for its form."""
    assert [problem.rule for problem in refused_extra_args({key: 1})] == ["extra-arg-form"]


@pytest.mark.parametrize("value", [None, [], ["--host"], [["x"]], [{"a": 1}], [None]])
def test_values_that_could_be_flags_are_refused(value: object) -> None:
    """Null, empty and nested lists, and list items that begin with a dash, are refused for their form."""
    assert [problem.rule for problem in refused_extra_args({"seed": value})] == ["extra-arg-form"]  # type: ignore[dict-item]


def test_values_as_the_engine_reads_them() -> None:
    """True, false, mapping, list, number and text each in the form that vLLM's parser takes."""
    extra = {
        "async-scheduling": True,
        "enable-chunked-prefill": False,
        "compilation-config": {"mode": 0},
        "allowed-media-domains": ["a", "b"],
        "seed": 3,
        "tokenizer": "--host",
    }
    assert written(extra) == [
        *("--async-scheduling", "--no-enable-chunked-prefill", '--compilation-config={"mode": 0}'),
        *("--allowed-media-domains", "a", "b", "--seed=3", "--tokenizer=--host"),
    ]


@given(
    flag=st.sampled_from(sorted(REFUSED)), length=st.integers(min_value=1, max_value=40), under=st.booleans()
)
def test_no_beginning_of_a_refused_flag_reaches_it(flag: str, length: int, under: bool) -> None:
    """A key that passes is never read as the refused flag by a parser that takes beginnings, as vLLM's does."""
    key = flag[:length].rstrip("-")
    key = key.replace("-", "_") if under else key
    if not refused_extra_args({key: "x"}):
        parser = argparse.ArgumentParser(exit_on_error=False)
        parser.add_argument(f"--{flag}", dest="reached")
        own = {"tokenizer", "reasoning-parser"}
        for other in own - {flag}:
            parser.add_argument(f"--{other}", dest=other)
        parsed, _ = parser.parse_known_args([argument.replace("_", "-") for argument in written({key: "x"})])
        assert parsed.reached is None


@pytest.mark.parametrize(
    "name", ["VLLM_API_KEY", "VLLM_PLUGINS", "VLLM_CPU_KVCACHE_SPACE", "HF_TOKEN", "MY_PASSWORD"]
)
def test_variables_that_are_not_the_stacks(name: str) -> None:
    """Variables that open the engine, shut the plugin out or hold a secret are refused with a hint."""
    problems = refused_extra_env({name: "x"})
    assert [problem.rule for problem in problems] == ["extra-env-refused"]
    assert problems[0].hint


@pytest.mark.parametrize("name", ["VLLM_CPU_OMP_THREADS_BIND", "TOKENIZERS_PARALLELISM"])
def test_other_variables_pass(name: str) -> None:
    """An ordinary variable passes, one with a word like a secret's in it too."""
    assert refused_extra_env({name: "0-3"}) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("distributed-executor-backend", "evil.Executor"),
        ("compilation-config.backend", "evil.backend"),
        ("compilation-config", {"backend": "evil.backend"}),
        ("structured-outputs-config", {"reasoning_parser_plugin": "./evil.py"}),
        ("structured-outputs-config.reasoning_parser_plugin", "./evil.py"),
        ("kv-transfer-config", {"kv_connector_module_path": "evil"}),
        ("kv-transfer-config.kv_connector_module_path", "evil"),
        ("log-config-file", "./evil.yaml"),
        ("enable-log-requests", True),
    ],
)
def test_code_and_prompts_do_not_come_in_by_members(key: str, value: JsonValue) -> None:
    """Flags and members of JSON flags that load code, reach out, or log prompts are refused however they are written."""
    assert [problem.rule for problem in refused_extra_args({key: value})] == ["extra-arg-refused"]


@pytest.mark.parametrize("value", ["1\0", {"a": "\0"}])
def test_no_value_holds_nul(value: JsonValue) -> None:
    """NUL would end an argument early."""
    assert [problem.rule for problem in refused_extra_args({"seed": value})] == ["extra-arg-form"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_SERVER_DEV_MODE=1\0", ""),
        ("OUTRIDER_VLLM=0", ""),
        ("A", "\0"),
        ("", ""),
        ("DB_PWD", "x"),
        ("GITHUB_PAT", "x"),
    ],
)
def test_variables_have_plain_names(name: str, value: str) -> None:
    """A name that smuggles another variable in is none; secrets stand elsewhere."""
    assert [problem.rule for problem in refused_extra_env({name: value})] == ["extra-env-refused"]
