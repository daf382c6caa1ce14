"""What calls the core, and is not called: one folder each."""
