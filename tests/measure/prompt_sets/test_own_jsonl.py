"""The user's own JSONL: every form that is about, and every record that cannot be used counted by its reason."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.core.errors import MeasurementError
from outrider.measure.prompt_sets import PromptOptions, load_prompt_set
from outrider.measure.prompt_sets.load import ONE_PROMPT
from outrider.measure.prompts import Prompt, PromptSet

GOOD = '{"prompt": "good"}'


def load(folder: Path, *lines: str | bytes, **options: int) -> PromptSet:
    """The set that these lines of a file make."""
    file = folder / "mine.jsonl"
    file.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))
    return load_prompt_set(str(file), options=PromptOptions(**options))


@pytest.mark.parametrize(
    ("record", "prompt"),
    [
        ({"prompt": "Hi"}, Prompt("mine/1", ("Hi",))),
        ({"text": "Hi"}, Prompt("mine/1", ("Hi",))),
        ("Hi", Prompt("mine/1", ("Hi",))),
        ({"prompt": ["Hi", "And?"]}, Prompt("mine/1", ("Hi", "And?"))),
        ({"turns": ["Hi", "And?"]}, Prompt("mine/1", ("Hi", "And?"))),
        ({"id": "a 7\n", "category": "faq", "prompt": "Hi"}, Prompt("mine/a7", ("Hi",), None, "faq")),
        ({"id": 0, "system": "Be brief.", "text": "Hi"}, Prompt("mine/0", ("Hi",), "Be brief.")),
        ({"prompt": [{"role": "user", "content": "Hi"}]}, Prompt("mine/1", ("Hi",))),
        (
            {
                "messages": [
                    {"role": "developer", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                    {"role": "assistant", "content": "Hello."},
                    {"role": "user", "content": "And?"},
                    {"role": "assistant", "content": None},
                ]
            },
            Prompt("mine/1", ("Hi", "And?"), "Be brief."),
        ),
        (
            {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]},
            Prompt("mine/1", ("Hi",)),
        ),
        ({"prompt": " Grüße,\u2028 \U0001f600 \r\n"}, Prompt("mine/1", (" Grüße,\u2028 \U0001f600 \r\n",))),
    ],
)
def test_a_form_that_is_read(tmp_path: Path, record: object, prompt: Prompt) -> None:
    """Each form gives its user turns and system text as they stand; answers are left out."""
    assert load(tmp_path, json.dumps(record, ensure_ascii=False)).prompts == (prompt,)


def messages(*pairs: tuple[object, object]) -> str:
    """A line with these roles and contents."""
    return json.dumps({"messages": [{"role": role, "content": content} for role, content in pairs]})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "bad JSON"),
        ("not json", "bad JSON"),
        ('{"prompt": "a"} {"prompt": "b"}', "bad JSON"),
        ('{"prompt": "raw \x00 byte"}', "bad JSON"),
        ("9" * 5000, "bad JSON"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        ("[" * 100_000, "nested too deep"),
        ("null", "not an object or a string"),
        ("3", "not an object or a string"),
        ('["a"]', "not an object or a string"),
        ("{}", "no prompt field"),
        ('{"question": "a"}', "no prompt field"),
        ('""', "empty prompt"),
        ('{"prompt": " \\n"}', "empty prompt"),
        ('{"turns": []}', "empty prompt"),
        ('{"turns": ["a", ""]}', "empty prompt"),
        ('{"prompt": 3}', "not text"),
        ('{"prompt": null}', "not text"),
        ('{"prompt": []}', "not text"),
        ('{"turns": "a"}', "not text"),
        ('{"turns": ["a", 3]}', "not text"),
        ('{"system": 3, "prompt": "a"}', "not text"),
        (messages(("user", [{"type": "image_url", "image_url": {"url": "x"}}])), "not text"),
        (messages(("user", [{"type": "text", "text": 3}])), "not text"),
        ('{"messages": "a"}', "not a list of messages"),
        ('{"messages": ["a"]}', "not a list of messages"),
        ('{"messages": []}', "no user turn"),
        (messages(("system", "a")), "no user turn"),
        (messages(("user", "a"), ("referee", "b")), "unknown role"),
        (messages(("user", "a"), (None, "b")), "unknown role"),
        (messages(("user", "a"), ({}, "b")), "unknown role"),
        (messages(("user", "a"), ("tool", "b")), "needs tools"),
        (messages(("assistant", "a"), ("user", "b")), "begins with an answer"),
        (messages(("user", "a"), ("system", "b")), "system text after the first turn"),
        (
            '{"system": "a", "messages": [{"role": "system", "content": "b"}, {"role": "user", "content": "c"}]}',
            "two system texts",
        ),
        ('{"prompt": "a\\u0000b"}', "NUL character"),
        ('{"prompt": "a\\ud800"}', "half a character (lone surrogate)"),
        ('{"text": "good"}', "duplicate prompt"),
        (json.dumps({"prompt": "x" * 100}), "longer than 30 tokens (estimated)"),
        (json.dumps({"prompt": "x" * 300_000}), "line longer than 200,000 bytes"),
    ],
)
def test_a_record_that_cannot_be_used_is_counted(tmp_path: Path, line: str | bytes, reason: str) -> None:
    """One bad line among good ones: dropped under its reason, the lines after it still read."""
    found = load(tmp_path, GOOD, line, '"after"', max_tokens=30, max_record_bytes=200_000)
    assert dict(found.dropped) == {reason: 1}
    assert {prompt.turns for prompt in found.prompts} == {("good",), ("after",)}
    assert found.dropped_words() == f"kept 2 of 3: 1 dropped (1 {reason})"


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_the_file_of_another_editor(tmp_path: Path, newline: bytes) -> None:
    """A byte order mark, CRLF, blank lines and a missing last newline change nothing."""
    file = tmp_path / "mine.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + newline.join([b'{"prompt": "a"}', b"", b" \t", b'"b"']))
    found = load_prompt_set(str(file))
    assert [prompt.turns for prompt in found.prompts] == [("a",), ("b",)]
    assert not found.dropped


def test_utf16_is_told(tmp_path: Path) -> None:
    """A file of another encoding is refused with its reason, not read as noise."""
    file = tmp_path / "mine.jsonl"
    file.write_bytes('{"prompt": "a"}\n{"prompt": "b"}'.encode("utf-16"))
    with pytest.raises(MeasurementError, match=r"no usable prompt: .*not UTF-8"):
        load_prompt_set(str(file))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", gzip.compress(b"")])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """Nothing to send is an error that names the file and what it needs."""
    file = tmp_path / "mine.jsonl"
    file.write_bytes(content)
    with pytest.raises(MeasurementError, match=r"mine\.jsonl is empty") as caught:
        load_prompt_set(str(file))
    assert "one prompt a line" in caught.value.hint


def test_a_file_without_a_usable_record_says_why(tmp_path: Path) -> None:
    """All reasons with their counts, and the forms that are read."""
    with pytest.raises(MeasurementError, match="no usable prompt: 2 bad JSON, 1 no prompt field") as caught:
        load(tmp_path, "{", "x", "{}")
    assert '"messages"' in caught.value.hint


def test_one_prompt_is_allowed_and_noted(tmp_path: Path) -> None:
    """A single prompt runs, and the report can say whom it flatters."""
    assert load(tmp_path, GOOD).notes == (ONE_PROMPT,)
    assert load(tmp_path, GOOD, '"other"').notes == ()


def test_ids_used_twice_stay_apart(tmp_path: Path) -> None:
    """Ids are unique in the set even where the file's are not, and those of numbered records do not collide."""
    found = load(
        tmp_path, '{"id": 2, "text": "a"}', '"b"', '{"id": 2, "text": "c"}', '{"id": "2#2", "text": "d"}'
    )
    assert len({prompt.id for prompt in found.prompts}) == 4


def test_turns_can_be_limited(tmp_path: Path) -> None:
    """`max_turns` keeps the first turns and notes how many conversations go on."""
    found = load(tmp_path, '{"turns": ["a", "b", "c"]}', '"d"', max_turns=2)
    assert {prompt.turns for prompt in found.prompts} == {("a", "b"), ("d",)}
    assert found.notes == ("1 of 2 usable conversations go on after the turns that are sent.",)


def test_the_estimate_counts_bytes(tmp_path: Path) -> None:
    """Three bytes a token: Chinese text, three bytes a character, counts one token a character, escaped or not."""
    found = load(tmp_path, json.dumps("字" * 10, ensure_ascii=False), json.dumps("字" * 11), max_tokens=10)
    assert found.dropped == {"longer than 10 tokens (estimated)": 1}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["prompt", "text", "turns", "messages", "role", "content", "conversations", "from", "value", "system", "id",
             "category", "type", "tool_calls"]
        ),
        inner | st.sampled_from(["user", "human", "assistant", "system", "text", "tool"]),
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip
line_of_file = st.binary(max_size=40) | anything.map(lambda value: json.dumps(value).encode())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(line_of_file, max_size=8), mark=st.booleans(), newline=st.sampled_from([b"\n", b"\r\n"])
)
def test_any_bytes_are_kept_or_counted(
    tmp_path: Path, lines: list[bytes], mark: bool, newline: bytes
) -> None:
    """Whatever the file holds: no crash, every line that is not blank is kept or dropped, what is kept can be sent."""
    content = (b"\xef\xbb\xbf" if mark else b"") + newline.join(lines) + b'\n"always"'
    file = tmp_path / "any.jsonl"
    file.write_bytes(content)
    if content.startswith(b"\x1f\x8b"):
        return
    found = load_prompt_set(str(file), options=PromptOptions(max_record_bytes=60))
    filled = [line for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
    assert len(found.prompts) + sum(found.dropped.values()) == len(filled)
    assert len({prompt.id for prompt in found.prompts}) == len(found.prompts)
    for prompt in found.prompts:
        assert prompt.turns
        assert all(turn.strip() and "\0" not in turn and turn.encode() for turn in prompt.turns)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200), name=st.sampled_from(["a.jsonl", "a.json", "a.jsonl.gz", "a.json.gz"]),
       spec=st.sampled_from(["jsonl", "sharegpt", "gsm8k", "humaneval", "mt-bench"]), pack=st.booleans())  # fmt: skip
def test_any_bytes_load_or_are_refused(
    tmp_path: Path, content: bytes, name: str, spec: str, pack: bool
) -> None:
    """In every format and packing, noise ends in prompts or in a MeasurementError with a hint, never in another error."""
    file = tmp_path / name
    file.write_bytes(gzip.compress(content) if pack else content)
    try:
        assert load_prompt_set(f"{spec}={file}").prompts
    except MeasurementError as refusal:
        hint = refusal.hint
    else:
        return
    assert hint


def test_a_label_names_the_users_own_file(tmp_path: Path) -> None:
    """`LABEL=FILE`: two files of one basename become two sets, each with its label in its name and ids, the file as source."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.jsonl").write_text(f'{{"prompt": "of {name}"}}\n')
    first, second = (
        load_prompt_set(f"{label}={tmp_path / label[-1]}/mine.jsonl") for label in ("chats-a", "x.b")
    )
    assert (first.name, second.name) == ("chats-a", "x.b")
    assert first.prompts == (Prompt("chats-a/1", ("of a",)),)
    assert second.prompts == (Prompt("x.b/1", ("of b",)),)
    assert first.source == second.source == "mine.jsonl"


def test_a_label_takes_files_of_any_name(tmp_path: Path) -> None:
    """The label says that it is the user's own, so the file may be called what it likes; a name with = in it stays a file."""
    (tmp_path / "log.txt").write_text(GOOD + "\n")
    (tmp_path / "k=3.jsonl").write_text(GOOD + "\n")
    assert load_prompt_set(f"chats={tmp_path}/log.txt").name == "chats"
    assert load_prompt_set(f"{tmp_path}/k=3.jsonl").name == "k=3"
    assert load_prompt_set(f"chats={tmp_path}/k=3.jsonl").name == "chats"


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("my chats", "cannot be a set's label"),
        ("a/b", "cannot be a set's label"),
        ("", "cannot be a set's label"),
        ("ü", "cannot be a set's label"),
        ("x" * 65, "cannot be a set's label"),
        ("HumanEval", "too like humaneval"),
        ("mt_bench", "too like mt-bench"),
    ],
)
def test_what_is_no_label_is_refused(tmp_path: Path, label: str, message: str) -> None:
    """Labels go into file names and tables; and none may pass for a named set, which is sent in another form."""
    (tmp_path / "mine.jsonl").write_text(GOOD + "\n")
    with pytest.raises(MeasurementError, match=message) as refused:
        load_prompt_set(f"{label}={tmp_path}/mine.jsonl")
    assert refused.value.hint


@pytest.mark.parametrize("spec", ["{}", "chats={}", "jsonl={}"])
def test_a_folder_is_called_a_folder(tmp_path: Path, spec: str) -> None:
    """A set is one file: a folder is said to be one, however it is named."""
    with pytest.raises(MeasurementError, match="is a folder") as refused:
        load_prompt_set(spec.format(tmp_path))
    assert "file" in refused.value.hint


def test_a_label_without_its_file(tmp_path: Path) -> None:
    """The message names the file that is not there, and the label; nothing after = is said as well."""
    with pytest.raises(MeasurementError, match=r"chats: there is no file .*none\.jsonl"):
        load_prompt_set(f"chats={tmp_path}/none.jsonl")
    with pytest.raises(MeasurementError, match="nothing follows the ="):
        load_prompt_set("chats=")
