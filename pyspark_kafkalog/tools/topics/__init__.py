"""Topics and brokers: list, create, alter and delete."""
