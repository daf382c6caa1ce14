"""Consumer groups of a log directory, in its own ``__consumer_offsets``."""
