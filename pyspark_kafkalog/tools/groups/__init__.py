"""Consumer groups: lag, offsets and reset."""
