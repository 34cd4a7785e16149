"""The governor."""
