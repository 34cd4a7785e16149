"""What the switch of drafts inside vLLM costs: an idle switch against the plain engine, `off` against no speculation."""
