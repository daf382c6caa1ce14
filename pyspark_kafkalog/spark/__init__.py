"""The PySpark data source; the only importer of pyspark."""
