"""Log directories: Kafka's on-disk partitions, read and written with no broker."""
