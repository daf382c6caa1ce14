"""What a machine in a cloud can be asked: which zone it is in, and who it is for brokers."""
