"""A batch of rows as one transaction: exactly once, whatever dies (docs/exactly-once-protocol.md)."""
