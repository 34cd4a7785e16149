"""Training: the data of a head, its training, what a run leaves."""
