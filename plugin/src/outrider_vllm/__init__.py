"""What Outrider runs inside vLLM. Standard library, torch and vLLM only; inert unless OUTRIDER_VLLM is set."""


def register() -> None:
    """Entry point `vllm.general_plugins`: called in every vLLM process, maybe more than once."""
