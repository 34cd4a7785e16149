"""Scale-out: the arithmetic, the model, the live run."""
