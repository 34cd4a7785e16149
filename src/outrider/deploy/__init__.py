"""From a stack to a cluster: what runs there, and how many of it."""
