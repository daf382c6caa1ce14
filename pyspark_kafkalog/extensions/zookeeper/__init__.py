"""The groups of consumers that keep their offsets in ZooKeeper, as those before Kafka 2.0 do."""
