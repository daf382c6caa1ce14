"""What is known of a cluster, and calls that outlive a broker's failure."""
