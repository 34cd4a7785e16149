"""One folder an engine, all behind one protocol (base.py)."""
