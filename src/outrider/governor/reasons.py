"""Why a draft is in force: short names, few enough for a metric's label. A sentence with the figures stands beside each."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """start: the stack's draft. broken: the readiness probe saw nothing accepted. acceptance: too little is accepted.
    load: a step with it takes longer at this batch than it brings. trial: to learn how long a step without a draft takes.
    trial-over: and back. recovered: its probes are good again. pinned: an operator asked for it. released: and let it go.
    """

    START = "start"
    BROKEN = "broken"
    ACCEPTANCE = "acceptance"
    LOAD = "load"
    TRIAL = "trial"
    TRIAL_OVER = "trial-over"
    RECOVERED = "recovered"
    PINNED = "pinned"
    RELEASED = "released"
