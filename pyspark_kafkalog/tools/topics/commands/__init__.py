"""Commands about topics and brokers."""
