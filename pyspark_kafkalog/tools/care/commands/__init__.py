"""Commands that take care of logs."""
