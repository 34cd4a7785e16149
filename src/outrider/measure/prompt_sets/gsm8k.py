"""GSM8K: a grade-school word problem, asked as it stands.

Source: Cobbe et al. 2021, arXiv:2110.14168; field `question` of its data file.
"""

from __future__ import annotations

from outrider.measure.prompt_sets.shape import Shape, Unusable, id_of, text_of


def shape(record: object) -> Shape:
    """One problem. Raises Unusable."""
    if not isinstance(record, dict) or "question" not in record:
        raise Unusable("no `question` field")
    return Shape((text_of(record["question"]),), own_id=id_of(record))
