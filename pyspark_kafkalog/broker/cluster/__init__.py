"""The state of a cluster as its brokers tell it, and calls that survive a broker's failure."""
