"""What a streaming query plans, commits to its group and keeps beside its checkpoint."""
