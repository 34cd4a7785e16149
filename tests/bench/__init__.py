"""Tests of the bench: from records to answers."""
