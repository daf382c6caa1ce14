"""Who logs in to brokers, and what TLS checks: the names of Kafka's SaslConfigs and SslConfigs."""
