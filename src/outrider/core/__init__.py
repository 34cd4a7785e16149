"""The few types everyone shares; standard library only."""
