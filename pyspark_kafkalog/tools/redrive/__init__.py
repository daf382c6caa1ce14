"""Dead letters, sent back each once."""
