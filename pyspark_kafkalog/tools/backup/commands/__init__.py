"""Commands about backups."""
