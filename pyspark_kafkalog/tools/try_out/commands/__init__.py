"""The command that runs a broker."""
