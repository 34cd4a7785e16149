"""Prompt sets: names, formats, hostile files, the hub, and the order."""
