"""A log directory as a place: its roots, partitions, segments and what their indexes hint at."""
