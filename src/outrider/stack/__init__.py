"""The user's file: what to serve, with which draft, on what."""
