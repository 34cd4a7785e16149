"""Which draft new requests run with: pure decisions from what was measured. No clock, no I/O, no randomness of its own."""
