"""Pure translation between record batches (bytes) and Arrow: no file, socket, clock or Spark in reach."""
