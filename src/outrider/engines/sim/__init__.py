"""A simulated engine: known timings, scriptable faults, no model. For load and failure tests of the front."""
