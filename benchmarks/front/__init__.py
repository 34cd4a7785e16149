"""What the front costs, against nginx in the same run."""
