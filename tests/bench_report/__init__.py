"""Tests of the bench report."""
