"""The chart: rendered by Helm 3 and 4, validated, its alerts fired, its processes stopped."""
