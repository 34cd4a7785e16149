"""Training a draft head for a target: data written by the target itself, a head that learns from it, its served acceptance."""
