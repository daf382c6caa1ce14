"""Values of records as typed columns, decoded where their bytes are. Pure."""
