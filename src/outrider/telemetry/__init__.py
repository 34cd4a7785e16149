"""What Outrider measures: metric names, Prometheus text, counter windows."""
