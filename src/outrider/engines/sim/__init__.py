"""A simulated engine, for load and failure tests only."""
