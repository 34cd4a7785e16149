"""The rendered rules in Prometheus' own hands: each alert fires when it should, and stays silent when it should."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.deploy.charts import CASES, RELEASE, Json, merged, one, template, tool, values

CASE = "keda"  # with a baseline, two lanes, and the alert that is off by default
ROOT = Path(__file__).parents[2]
PAIR = str(values(CASES[CASE])["pair"]["hash"])
OURS = f'namespace="serving",outrider="{RELEASE}",pair="{PAIR}"'
IDLE = "0+0x300"


@dataclass(frozen=True)
class Told:
    """Series (name with labels → promtool's notation, one sample a minute) and the minute at which is looked."""

    series: dict[str, str]
    minute: int = 60


def counter(name: str, labels: str = "", per_minute: float = 0.0, minutes: int = 300) -> dict[str, str]:
    """A counter that grows evenly."""
    return {f"{name}{{{OURS}{',' if labels else ''}{labels}}}": f"0+{per_minute}x{minutes}"}


def gauge(name: str, value: float, labels: str = "", minutes: int = 300) -> dict[str, str]:
    """A gauge that stays."""
    return {f"{name}{{{OURS}{',' if labels else ''}{labels}}}": f"{value}+0x{minutes}"}


def drafts(drafts_a_minute: float, length: float) -> dict[str, str]:
    """Engine counters of this many drafts at this acceptance length, K = 3; two fronts count the same engine."""
    found: dict[str, str] = {}
    for front in ("a", "b"):
        labels = f'engine="10.0.0.1:8000",draft="eagle3",pod="{front}"'
        found |= counter("outrider_engine_drafts_total", labels, drafts_a_minute)
        found |= counter("outrider_engine_draft_tokens_proposed_total", labels, 3 * drafts_a_minute)
        found |= counter(
            "outrider_engine_draft_tokens_accepted_total", labels, (length - 1) * drafts_a_minute
        )
    return found


def histogram(name: str, below: float, above: float, bound: float) -> dict[str, str]:
    """`below` observations a minute under `bound` seconds, `above` over it."""
    lane = 'lane="interactive"'
    return {
        **counter(f"{name}_bucket", f'{lane},le="{bound / 2}"', below),
        **counter(f"{name}_bucket", f'{lane},le="{bound * 4}"', below + above),
        **counter(f"{name}_bucket", f'{lane},le="+Inf"', below + above),
    }


def ended(ok: float, failed: float = 0.0) -> dict[str, str]:
    """Requests of the interactive lane that ended, a minute."""
    return {
        **counter("outrider_requests_total", 'lane="interactive",outcome="ok"', ok),
        **counter("outrider_requests_total", 'lane="interactive",outcome="engine_error"', failed),
    }


def positions(accepted: float, drafted: float) -> dict[str, str]:
    """What vLLM itself counts at position 0."""
    return {
        **counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", 'position="0"', accepted),
        **counter("vllm:spec_decode_num_drafts_total", "", drafted),
    }


def drift(after: float) -> dict[str, str]:
    """AL 3.0 for 30 hours, then `after` for 5."""
    labels = 'engine="10.0.0.1:8000",draft="eagle3"'
    day, later = 30 * 60, 5 * 60
    steps = {"outrider_engine_drafts_total": (60.0, 60.0)}
    steps["outrider_engine_draft_tokens_accepted_total"] = (120.0, (after - 1) * 60)
    return {
        f"{name}{{{OURS},{labels}}}": f"0+{before}x{day} {before * day + now}+{now}x{later}"
        for name, (before, now) in steps.items()
    }


LANE = 'lane="interactive"'
FIRES: dict[str, Told] = {
    "OutriderQueueWaitHigh": Told(gauge("outrider_lane_queue_wait_seconds", 0.7, LANE)),
    "OutriderNoEngine": Told(gauge("outrider_engines_ready", 0, LANE)),
    "OutriderEngineErrors": Told(ended(95, 5)),
    "OutriderFirstTokenSlow": Told(histogram("outrider_time_to_first_token_seconds", 90, 10, 1.0)),
    "OutriderTokensSlow": Told(histogram("outrider_time_per_output_token_seconds", 90, 10, 0.05)),
    "OutriderSpecSilent": Told({**ended(60), **drafts(0, 1)}),
    "OutriderDraftBroken": Told(gauge("outrider_draft_broken", 1)),
    "OutriderAcceptanceDrift": Told(drift(2.6), minute=34 * 60),
    "OutriderFallbackActive": Told(gauge("outrider_draft_in_force", 1, 'draft="ngram"')),
    "OutriderAcceptanceLow": Told(drafts(600, 2.6)),
    "OutriderSpecSlower": Told(drafts(600, 1.3)),
    "OutriderPositionZeroLow": Told(positions(300, 600)),
}
SILENT: dict[str, list[Told]] = {
    # 0.4 s; a minute of 5 s; a batch lane that waits on purpose; nobody there.
    "OutriderQueueWaitHigh": [
        Told(gauge("outrider_lane_queue_wait_seconds", 0.4, LANE)),
        Told({f"outrider_lane_queue_wait_seconds{{{OURS},{LANE}}}": "0+0x30 5+0x2 0+0x60"}, minute=34),
        Told(gauge("outrider_lane_queue_wait_seconds", 900, 'lane="batch"')),
        Told({}),
    ],
    # one engine; a batch lane at zero, where it belongs.
    "OutriderNoEngine": [
        Told(gauge("outrider_engines_ready", 1, LANE)),
        Told(
            {**gauge("outrider_engines_ready", 1, LANE), **gauge("outrider_engines_ready", 0, 'lane="batch"')}
        ),
    ],
    "OutriderEngineErrors": [Told(ended(99, 1)), Told(ended(0, 0))],
    "OutriderFirstTokenSlow": [
        Told(histogram("outrider_time_to_first_token_seconds", 1000, 1, 1.0)),
        Told(histogram("outrider_time_to_first_token_seconds", 0, 0, 1.0)),
    ],
    "OutriderTokensSlow": [
        Told(histogram("outrider_time_per_output_token_seconds", 1000, 1, 0.05)),
        Told(histogram("outrider_time_per_output_token_seconds", 0, 0, 0.05)),
    ],
    # drafts flow; nobody asks.
    "OutriderSpecSilent": [Told({**ended(60), **drafts(600, 2.9)}), Told({**ended(0), **drafts(0, 1)})],
    "OutriderDraftBroken": [Told(gauge("outrider_draft_broken", 0))],
    # 5 % less; the same; a first hour, with no day before it.
    "OutriderAcceptanceDrift": [
        Told(drift(2.9), minute=34 * 60),
        Told(drift(3.0), minute=34 * 60),
        Told(drafts(600, 1.5), minute=45),
    ],
    "OutriderFallbackActive": [Told(gauge("outrider_draft_in_force", 1, 'draft="eagle3"'))],
    # The baseline is AL 3.06: AL - 1 of 2.06, of which 85 % is 1.75. Few drafts say nothing.
    "OutriderAcceptanceLow": [Told(drafts(600, 2.8)), Told(drafts(1, 1.2)), Told(drafts(0, 1))],
    "OutriderSpecSlower": [Told(drafts(600, 1.5)), Told(drafts(0, 1))],
    "OutriderPositionZeroLow": [Told(positions(420, 600)), Told(positions(0, 1)), Told(positions(0, 0))],
}


@pytest.fixture(scope="module")
def groups() -> list[Json]:
    """The rule groups as the Prometheus Operator gets them."""
    found: list[Json] = one(CASE, "PrometheusRule", RELEASE)["spec"]["groups"]
    return found


def alerts(groups: list[Json]) -> dict[str, Json]:
    """Alerts by name."""
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def promtool(folder: Path, groups: list[Json], tests: list[Json]) -> "subprocess.CompletedProcess[str]":
    """`promtool test rules`."""
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(content, width=10_000))
    command = [tool("promtool"), "test", "rules", "tests.yaml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def asked(alert: str, told: Told, firing: bool) -> Json:
    """One test: is the alert firing at that minute, under the pair's name?"""
    expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing",pair="{PAIR}"}})'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": given} for name, given in told.series.items()],
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": f"{told.minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if firing else [],
            }
        ],
    }


def test_every_alert_has_a_case_that_fires_and_one_that_does_not(groups: list[Json]) -> None:
    """A new alert without tests fails here."""
    assert set(alerts(groups)) == set(FIRES) == set(SILENT)


def test_promtool_takes_the_rules(groups: list[Json], tmp_path: Path) -> None:
    """Syntax, templates of the annotations, no rule twice."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    command = [tool("promtool"), "check", "rules", "rules.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", FIRES)
def test_it_fires(alert: str, groups: list[Json], tmp_path: Path) -> None:
    """With the series of the fault."""
    done = promtool(tmp_path, groups, [asked(alert, FIRES[alert], firing=True)])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", SILENT)
def test_it_stays_silent(alert: str, groups: list[Json], tmp_path: Path) -> None:
    """Near the threshold, without traffic, and at a short hitch."""
    done = promtool(tmp_path, groups, [asked(alert, told, firing=False) for told in SILENT[alert]])
    assert done.returncode == 0, done.stdout + done.stderr


def test_cost_is_that_of_all_engines_over_all_fronts(groups: list[Json], tmp_path: Path) -> None:
    """Two interactive engines and one for batch at 4 USD an hour, 2 × 500 tokens a second: 3.33 USD per million."""
    series = {
        **gauge("outrider_engines_ready", 2, 'lane="interactive",pod="a"'),
        **gauge("outrider_engines_ready", 2, 'lane="interactive",pod="b"'),
        **gauge("outrider_engines_ready", 1, 'lane="batch",pod="a"'),
        **counter("outrider_output_tokens_total", 'pod="a"', 30_000),
        **counter("outrider_output_tokens_total", 'pod="b"', 30_000),
    }
    cost = asked("", Told(series), firing=True)
    cost["promql_expr_test"][0] |= {
        "expr": "round(100 * sum(outrider:cost_usd_per_million_output_tokens:rate10m))",
        "exp_samples": [{"labels": "{}", "value": 333}],
    }
    done = promtool(tmp_path, groups, [cost])
    assert done.returncode == 0, done.stdout + done.stderr


def test_canary_and_prod_are_told_apart(tmp_path: Path) -> None:
    """One release in two namespaces, one pair, one Prometheus: canary's drafts fail, and prod's alerts say nothing."""
    both = [
        group
        for namespace in ("serving-canary", "serving-prod")
        for each in yaml.safe_load_all(template("helm4", values(CASES[CASE]), namespace=namespace).stdout)
        if each and each["kind"] == "PrometheusRule"
        for group in each["spec"]["groups"]
    ]
    for number, group in enumerate(both):
        group["name"] += str(number)  # a file of each namespace, as the operator makes them
    ours = {"serving-canary": 2.0, "serving-prod": 3.0}
    told = Told(
        {
            series.replace('namespace="serving"', f'namespace="{namespace}"'): given
            for namespace, length in ours.items()
            for series, given in drafts(600, length).items()
        }
    )
    asks = asked("OutriderAcceptanceLow", told, firing=True)
    asks["promql_expr_test"] = [
        {
            "expr": f'count by (namespace) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
            "eval_time": "60m",
            "exp_samples": expected,
        }
        for alert, expected in (
            ("OutriderAcceptanceLow", [{"labels": '{namespace="serving-canary"}', "value": 1}]),
            ("OutriderSpecSlower", []),
        )
    ]
    done = promtool(tmp_path, both, [asks])
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_user_writes_stays_text(tmp_path: Path) -> None:
    """A source with YAML's signs and a template's braces: the rules are still ones that Prometheus takes."""
    given = merged(values(CASES[CASE]), {"pair": {"baseline": {"source": "mine: '{{ $x }}' #1"}}})
    given["watching"]["runbook"] = "https://wiki.example/a: #b"
    (rule,) = (
        each
        for each in yaml.safe_load_all(template("helm4", given).stdout)
        if each and each["kind"] == "PrometheusRule"
    )
    assert promtool(tmp_path, rule["spec"]["groups"], []).returncode == 0
    low = alerts(rule["spec"]["groups"])["OutriderAcceptanceLow"]["annotations"]
    assert low["description"].endswith("AL 3.06 (mine: '{ { $x }}' #1).")
    assert low["runbook_url"] == "https://wiki.example/a: #b#outrideracceptancelow"


def test_a_wrong_expectation_would_be_found(groups: list[Json], tmp_path: Path) -> None:
    """promtool says no when an alert does not do what a test expects."""
    wrong = asked("OutriderDraftBroken", SILENT["OutriderDraftBroken"][0], firing=True)
    assert promtool(tmp_path, groups, [wrong]).returncode != 0


def test_every_alert_has_a_section_in_the_runbook(groups: list[Json]) -> None:
    """And its link leads there."""
    sections = set(re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE))
    assert sections == set(alerts(groups))
    for name, rule in alerts(groups).items():
        assert rule["annotations"]["runbook_url"].endswith(f"#{name.lower()}")
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
