"""Log directories that follow another place: backups, and what brokers adopt."""
