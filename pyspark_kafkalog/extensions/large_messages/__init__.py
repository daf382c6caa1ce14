"""Large messages that travel as several records, in the wire format of LinkedIn's Kafka clients; no I/O."""
