"""What tasks stage, and how the driver publishes it."""
