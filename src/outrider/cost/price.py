"""USD per token from what the machine costs and what it makes."""

from __future__ import annotations


def usd_per_million_output_tokens(
    usd_per_hour: float, accelerators: int, output_tokens_per_s: float
) -> float | None:
    """accelerators × USD/hour ÷ (output tok/s × 3600) × 10⁶, rounded nowhere; None without throughput.

    The price is the user's; throughput is what was measured.
    """
    if output_tokens_per_s <= 0:
        return None
    return accelerators * usd_per_hour / (output_tokens_per_s * 3600) * 1e6
