"""Texts of others, made fit for a line of a log or terminal."""


def printable(text: str) -> str:
    """`text` with everything that is no visible sign or space (control characters, line ends, …) escaped as Python does."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
