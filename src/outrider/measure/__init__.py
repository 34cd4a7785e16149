"""What a measurement is made of: prompt sets, request records, the load, counters over time. Used by bench, train and tests."""
