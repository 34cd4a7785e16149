"""Outrider serves language models with speculative decoding that has to earn its keep."""

__version__ = "0.1.0"
