"""A query that copies a topic exactly once, in a Spark of its own: tests stop and kill it.

Its arguments are a folder, and JSON with the options of ``source`` and ``sink``. Where the values have a
format, ``good`` and ``dead`` are the topics of what can be decoded and what can't. It runs until it is ended.
A query that ends by itself ends it, with exit code 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import lit, to_json

from pyspark_kafkalog import dead_letters
from tests.sessions import local_session


def main() -> None:
    folder, given = sys.argv[1:]
    options = json.loads(given)
    spark = local_session("copy", Path(folder).with_suffix(".spark"))
    frame = spark.readStream.format("kafkalog").options(**options["source"]).load()
    if "dead" in options:
        good = {"topic": lit(options["good"]), "value": to_json("value")}
        frame = dead_letters(frame, options["dead"], good)
    else:
        frame = frame.select("value")
    query = frame.writeStream.format("kafkalog").options(**options["sink"]).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        print(error, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
