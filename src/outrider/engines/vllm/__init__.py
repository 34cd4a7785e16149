"""The vLLM adapter."""
