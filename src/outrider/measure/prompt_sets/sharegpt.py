"""ShareGPT: conversations that people shared; by path or hub id only, for its licence is stated nowhere.

The first user turn alone is sent unless the caller wants more: later ones refer to answers this model never gave.
Source: the `conversations` of `from` and `value` in the files called ShareGPT_V3.
"""

from __future__ import annotations

from outrider.measure.prompt_sets.shape import Shape, Unusable, id_of, talk


def shape(record: object) -> Shape:
    """One conversation. Raises Unusable."""
    if not isinstance(record, dict) or "conversations" not in record:
        raise Unusable("no `conversations` field")
    system, turns = talk(record["conversations"], "from", "value")
    return Shape(turns, system, own_id=id_of(record))
