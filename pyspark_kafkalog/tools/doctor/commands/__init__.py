"""The command of the doctor."""
