"""Optional features that the core calls through a contract."""
