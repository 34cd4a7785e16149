"""Forecasts: shapes without weights, stated acceptance, and what is reckoned from them."""
