"""Measurement: what bench, train and tests share."""
