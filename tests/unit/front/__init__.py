"""Unit tests of the front's pure parts."""
