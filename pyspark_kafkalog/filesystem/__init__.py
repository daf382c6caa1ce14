"""Folders and files, on any file system that pyarrow or fsspec opens."""
