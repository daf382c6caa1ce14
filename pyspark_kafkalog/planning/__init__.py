"""What to read, from where to where, in which shares: pure but for what a Place answers."""
