"""Scripts of this checkout."""
