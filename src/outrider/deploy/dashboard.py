"""The Grafana dashboard, made from the metric names: a metric that is renamed is renamed here, one that is not shown is a choice.

Source: Grafana's dashboard JSON model, schema version 39.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from outrider.telemetry import names
from outrider.telemetry.names import Metric

_MATCH = 'namespace="$namespace",outrider="$release"'
_UNITS = {
    "seconds": "s",
    "milliseconds": "ms",
    "ratio": "percentunit",
    "tokens": "short",
    "requests": "short",
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph: its title, unit, and (query, legend) of each line."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    help: str = ""


def _of(metric: Metric, *more: str) -> str:
    return f"{metric.name}{{{','.join((_MATCH, *more))}}}"


def _rate(metric: Metric, by: str, *more: str) -> str:
    return f"sum by ({by}) (rate({_of(metric, *more)}[5m]))"


def _quantile(metric: Metric, share: float) -> str:
    buckets = f"rate({metric.name}_bucket{{{_MATCH}}}[5m])"
    return f"histogram_quantile({share:g}, sum by (le, lane) ({buckets}))"


def _ratio(above: Metric, below: Metric) -> str:
    return f"{_rate(above, 'pair, draft')} / ({_rate(below, 'pair, draft')} > 0)"


def _tails(title: str, metric: Metric) -> Panel:
    lines = tuple((_quantile(metric, share), f"p{share * 100:g} {{{{lane}}}}") for share in (0.5, 0.9, 0.99))
    return Panel(title, _UNITS[metric.unit], lines, metric.help)


def panels() -> list[Panel]:
    """What is shown, in order: how long people wait, how fast they are served, what the draft is worth, how full it is."""
    length = f"1 + {_ratio(names.ENGINE_ACCEPTED, names.ENGINE_DRAFTS)}"
    return [
        Panel(
            "Queue wait (what the autoscaler reads)",
            "ms",
            (
                (f"max({_of(names.QUEUE_WAIT_MS)})", "all lanes"),
                (f"1000 * max by (lane) ({_of(names.LANE_QUEUE_WAIT)})", "{{lane}}"),
            ),
            names.QUEUE_WAIT_MS.help,
        ),
        Panel(
            "Engines ready",
            "short",
            ((f"max by (lane) ({_of(names.ENGINES_READY)})", "{{lane}}"),),
            names.ENGINES_READY.help,
        ),
        Panel(
            "Requests",
            "short",
            (
                (f"sum by (lane) ({_of(names.LANE_RUNNING)})", "running {{lane}}"),
                (f"sum by (lane) ({_of(names.WAITING)})", "waiting {{lane}}"),
            ),
            names.LANE_RUNNING.help,
        ),
        Panel(
            "Requests ended, per second",
            "reqps",
            ((_rate(names.REQUESTS, "outcome"), "{{outcome}}"),),
            names.REQUESTS.help,
        ),
        _tails("Time to first token", names.TTFT),
        _tails("Time per output token", names.TPOT),
        _tails("Time to the last token", names.E2E),
        Panel(
            "Tokens per second",
            "short",
            (
                (_rate(names.OUTPUT_TOKENS, "pair"), "output {{pair}}"),
                (_rate(names.PROMPT_TOKENS, "pair"), "prompt {{pair}}"),
            ),
            names.OUTPUT_TOKENS.help,
        ),
        Panel(
            "Acceptance length (the bonus token is included)",
            "short",
            ((length, "{{draft}} {{pair}}"),),
            names.ACCEPTANCE_LENGTH.help,
        ),
        Panel(
            "Acceptance rate",
            "percentunit",
            ((_ratio(names.ENGINE_ACCEPTED, names.ENGINE_PROPOSED), "{{draft}} {{pair}}"),),
            names.ACCEPTANCE_RATE.help,
        ),
        Panel(
            "Draft in force",
            "short",
            ((f"max by (draft) ({_of(names.DRAFT_IN_FORCE)})", "{{draft}}"),),
            names.DRAFT_IN_FORCE.help,
        ),
        Panel(
            "KV cache in use",
            "percentunit",
            ((f"max by (engine) ({_of(names.ENGINE_KV_CACHE)})", "{{engine}}"),),
            names.ENGINE_KV_CACHE.help,
        ),
        Panel(
            "Requests inside the engines",
            "short",
            (
                (f"max by (engine) ({_of(names.ENGINE_RUNNING)})", "running {{engine}}"),
                (f"max by (engine) ({_of(names.ENGINE_WAITING)})", "waiting {{engine}}"),
            ),
            names.ENGINE_RUNNING.help,
        ),
        Panel(
            "Output tokens per second, by API key",
            "short",
            ((_rate(names.KEY_OUTPUT_TOKENS, "key"), "{{key}}"),),
            names.KEY_OUTPUT_TOKENS.help,
        ),
        Panel(
            "Cost of 1M output tokens (where the stack has a price)",
            "currencyUSD",
            (
                (
                    f"outrider:cost_usd_per_million_output_tokens:rate10m{{{_MATCH}}}",
                    "{{pair}}",
                ),
            ),
        ),
    ]


def dashboard() -> dict[str, object]:
    """The dashboard as Grafana imports it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "title": "Outrider",
        "uid": "outrider",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "tags": ["outrider"],
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                _choice("namespace", f"label_values({names.QUEUE_WAIT_MS.name}, namespace)", source),
                _choice(
                    "release",
                    f'label_values({names.QUEUE_WAIT_MS.name}{{namespace="$namespace"}}, outrider)',
                    source,
                ),
            ]
        },
        "panels": [_panel(number, panel, source) for number, panel in enumerate(panels())],
    }


def _choice(name: str, query: str, source: dict[str, str]) -> dict[str, object]:
    return {"name": name, "type": "query", "label": name, "query": query, "datasource": source, "refresh": 2}


def _panel(number: int, panel: Panel, source: dict[str, str]) -> dict[str, object]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": source,
        "gridPos": {"x": number % 2 * 12, "y": number // 2 * 8, "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": source}
            for index, (query, legend) in enumerate(panel.lines)
        ],
    }


def dashboard_file() -> str:
    """The chart's files/dashboard.json."""
    return json.dumps(dashboard(), indent=1) + "\n"
