"""MT-Bench and Spec-Bench: questions of one or two turns, each in a category.

Source: Zheng et al. 2023, arXiv:2306.05685, and Xia et al. 2024, arXiv:2401.07851; fields `question_id`, `category`, `turns`
(`prompt` in the hub's copy of MT-Bench).
"""

from __future__ import annotations

from outrider.measure.prompt_sets.shape import Shape, Unusable, id_of, strings_of, word_of


def shape(record: object) -> Shape:
    """One question with all its turns. Raises Unusable."""
    if not isinstance(record, dict):
        raise Unusable("not an object")
    turns = record.get("turns", record.get("prompt"))
    if turns is None:
        raise Unusable("no `turns` field")
    category = word_of(record.get("category"))
    if not category:
        raise Unusable("no category")
    return Shape(strings_of(turns), category=category, own_id=id_of(record))
