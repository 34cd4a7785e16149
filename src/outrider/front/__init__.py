"""The OpenAI-compatible door."""
