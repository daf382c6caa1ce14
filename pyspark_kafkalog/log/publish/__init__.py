"""Tasks stage record batches, and the driver publishes them."""
