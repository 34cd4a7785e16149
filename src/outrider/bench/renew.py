"""A stored `run.json` told by today's code: what follows from its cells is reckoned again, what was measured stays as it is.

A stored document carries the answers of the version that wrote it. Its request records may be gone (a committed result, a file
that somebody sent), so what was made of them stays: every cell, and the differences of latency and the costs.
"""

from __future__ import annotations

from outrider.bench.analysis import follow
from outrider.bench.document import RunDocument
from outrider.bench.forecast_answers import finished


def renewed(document: RunDocument) -> RunDocument:
    """The document with speed-ups, step costs, crossovers, labels of a forecast and answers reckoned anew. Pure."""
    found = follow(document)
    return finished(found, found.forecast) if found.forecast else found
