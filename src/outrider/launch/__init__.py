"""The only code that starts, watches and stops a server process."""
