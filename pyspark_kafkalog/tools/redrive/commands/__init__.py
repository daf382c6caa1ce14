"""The command of redrive."""
