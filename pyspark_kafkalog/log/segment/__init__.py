"""One segment of a log: how it is read, appended to and recovered, and what its indexes say."""
