"""Machines in clouds: the zone that they are in, and their credentials for brokers."""
