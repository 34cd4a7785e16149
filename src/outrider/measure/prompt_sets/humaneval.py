"""HumanEval: a function's signature and docstring, asked of a chat model in our own words.

Source: Chen et al. 2021, arXiv:2107.03374; fields `task_id` and `prompt` of its data file.
"""

from __future__ import annotations

from outrider.measure.prompt_sets.shape import Shape, Unusable, id_of, text_of

TEMPLATE = (
    "Complete the Python function below. Answer with the whole function, its signature and imports included, "
    "in one Python code block.\n\n```python\n{prompt}\n```"
)


def shape(record: object) -> Shape:
    """One problem. Raises Unusable."""
    if not isinstance(record, dict) or "prompt" not in record:
        raise Unusable("no `prompt` field")
    code = text_of(record["prompt"])
    if not code.strip():
        raise Unusable("empty prompt")
    number = id_of(record, ("task_id",)).rpartition("/")[2]
    return Shape((TEMPLATE.replace("{prompt}", code.strip("\n")),), own_id=number)
