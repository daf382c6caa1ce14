"""A log directory as a place: its roots, partitions, segments and the hints of their indexes."""
