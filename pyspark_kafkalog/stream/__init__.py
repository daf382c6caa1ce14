"""What a streaming query plans, commits to its group, and stores beside its checkpoint."""
