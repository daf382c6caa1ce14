"""``python -m pyspark_kafkalog``: the command ``kafkalog``."""

from pyspark_kafkalog.tools.cli.application import kafkalog

if __name__ == "__main__":
    kafkalog(prog_name="kafkalog")
