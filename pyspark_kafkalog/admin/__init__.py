"""What can be done with a place besides streaming its records: :mod:`.kafka` is the object that users get."""
