"""The metrics page of an engine, read as the format's rules say."""

import pytest

from outrider.core.acceptance import difference
from outrider.engines.vllm.metrics import counters as read_counters
from outrider.telemetry.scrape import MAX_BYTES, next_epoch, parse

CREATED = """\
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 6.491797e+06
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.77692439e+09
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1.2983594e+07
vllm:spec_decode_num_accepted_tokens_created{engine="0",model_name="m"} 1.77692439e+09
"""


def spec(drafts: float, accepted: float, model: str = "m") -> str:
    """A page with two counters of one engine."""
    return (
        f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="{model}"}} {drafts}\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="{model}"}} {accepted}\n'
    )


def test_metrics_created_epoch() -> None:
    """`_created` samples are epochs: with and without them the counts are the same."""
    without = "".join(line + "\n" for line in CREATED.splitlines() if "_created" not in line)
    for text in (CREATED, without):
        counters = read_counters(parse(text)).spec
        assert (counters.drafts, counters.accepted) == (6491797, 12983594)
        assert difference(type(counters)(), counters).acceptance_length == pytest.approx(3.0)


def test_metrics_two_engines_positions() -> None:
    """Two engines are summed position by position: rates 0.725 and 0.425, AL 2.15."""
    rows = [("0", 100, 130, 80, 50), ("1", 300, 330, 210, 120)]
    text = "".join(
        f'vllm:spec_decode_num_drafts_total{{engine="{e}",model_name="m"}} {d}\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="{e}",model_name="m"}} {a}\n'
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{e}",model_name="m",position="0"}} {p0}\n'
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{e}",model_name="m",position="1"}} {p1}\n'
        for e, d, a, p0, p1 in rows
    )
    counters = read_counters(parse(text)).spec
    window = difference(type(counters)(), counters)
    assert window.position_rates == pytest.approx((0.725, 0.425))
    assert window.acceptance_length == pytest.approx(2.15)


def test_metrics_grammar() -> None:
    """Timestamps, braces and quotes in labels, comments between samples: all by the format's rules."""
    text = 'b{x="}",y="say \\"hi\\""} 1e3\n# a comment\nc{x="1"} 3 1700000000000\nd 4\n'
    samples = {sample.name: sample for sample in parse(text).samples}
    assert samples["b"].value == 1000.0
    assert (samples["b"].label("x"), samples["b"].label("y")) == ("}", 'say "hi"')
    assert (samples["c"].value, samples["d"].value) == (3, 4)


def test_metrics_counter_reset() -> None:
    """A restart voids that window, and the next one starts from the new counts."""
    pages = [(500, 900), (40, 60), (50, 85)]
    first, second, third = (read_counters(parse(spec(*page))).spec for page in pages)
    assert difference(first, second).void == "counter reset"
    assert difference(first, second).acceptance_rate is None
    assert difference(second, third).acceptance_length == pytest.approx(3.5)


def test_metrics_renamed_both() -> None:
    """A renamed metric under both names is read once, under the new one; unknown names do no harm."""
    text = "vllm:gpu_cache_usage_perc 0.41\nvllm:kv_cache_usage_perc 0.42\nvllm:something_new_total 1\n"
    assert read_counters(parse(text)).kv_cache_usage_ratio == 0.42


def test_metrics_epoch_and_model_change() -> None:
    """Counters at 0 under a new model name begin a new epoch; a reset alone does too; neither mixes models."""
    one, two = read_counters(parse(spec(500, 900, "m1"))), read_counters(parse(spec(0, 0, "m2")))
    epoch = next_epoch(None, one.models, {}, {"drafts": one.spec.drafts})
    changed = next_epoch(epoch, two.models, {"drafts": one.spec.drafts}, {"drafts": two.spec.drafts})
    assert (changed.number, changed.models, changed.reason) == (1, ("m2",), "model changed")
    reset = next_epoch(epoch, one.models, {"drafts": 500.0}, {"drafts": 3.0})
    assert (reset.number, reset.reason) == (1, "counter reset")
    assert next_epoch(epoch, one.models, {"drafts": 500.0}, {"drafts": 500.0}) is epoch


def test_a_page_that_is_too_large_is_refused() -> None:
    """What comes from outside has a limit."""
    with pytest.raises(ValueError, match="over the limit"):
        parse("x" * (MAX_BYTES + 1))


def test_what_is_no_number_is_no_value() -> None:
    """NaN and infinities: nothing can be reckoned with them."""
    page = "a NaN\nb +Inf\nc -Inf\nd 1\n"
    assert [sample.name for sample in parse(page).samples] == ["d"]
