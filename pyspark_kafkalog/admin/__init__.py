"""Administration of log directories and clusters, from Python and with no Spark."""
