"""Twenty minutes of changing traffic on the real CPU engine: with the governor, with the head always, and without a draft."""
