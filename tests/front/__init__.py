"""Tests on a running front, in a process of its own, before simulated engines."""
