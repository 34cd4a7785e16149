"""What a run leaves behind: `run.json`, which the chart and the test read."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from outrider.deploy.scaling import Policy
from outrider.deploy.service_times import ServiceTimes


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PhaseInfo(_Strict):
    """A part of the load."""

    rate_s: float
    length_s: float


class Sample(_Strict):
    """One look of the autoscaler: what Prometheus answered (None: nothing, or not one number), and the replicas then.

    sent: requests so far.
    """

    at_s: float
    sent: int
    queue_wait_ms: float | None
    running: float | None
    declared: int
    ready: int
    draining: int


class ChangeInfo(_Strict):
    """A decision that changed the number of replicas."""

    at_s: float
    before: int
    after: int
    reason: str


class Check(_Strict):
    """One of the things the run is to show."""

    name: str
    good: bool
    found: str


class ScaleRun(_Strict):
    """The whole file. `compression`: every window of the control loop is the declared one divided by it; service times are not.

    `policy` and `declared_policy` are the autoscaler's, as run and as a cluster would have it. longest_gap_s: between two looks;
    far over `policy.sync_s` the machine was too busy for its times to mean much.
    """

    schema_: Literal["outrider/scale-demo/v1"] = Field("outrider/scale-demo/v1", alias="schema")
    created: str
    provenance: dict[str, JsonValue]
    prometheus: str
    times: ServiceTimes
    concurrency: int
    output_tokens: int
    start_s: float
    compression: float
    phases: tuple[PhaseInfo, ...]
    policy: Policy
    declared_policy: Policy
    target_ms: float
    samples: tuple[Sample, ...]
    changes: tuple[ChangeInfo, ...]
    sent: int
    whole: int
    lost: dict[str, int]
    longest_gap_s: float
    checks: tuple[Check, ...]

    @property
    def good(self) -> bool:
        """Whether it showed what it is to show."""
        return all(check.good for check in self.checks)
