"""What is known about a cluster, and calls that survive a broker's failure."""
