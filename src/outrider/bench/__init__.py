"""Prove what the draft is worth, for each traffic and batch size, with tails and cost."""
