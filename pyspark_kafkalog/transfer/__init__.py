"""Between places and arrow batches, knowing neither Spark nor what kind of place it is."""
