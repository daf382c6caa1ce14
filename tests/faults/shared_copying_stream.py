"""A query of a shared group that copies a topic exactly once, in a Spark of its own: tests stop and kill it.

Its arguments are those of :mod:`tests.faults.shared_copier`. It runs until it is ended. A query that ends
by itself ends it, with exit code 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException

from tests.sessions import local_session


def main() -> None:
    folder, given = sys.argv[1:]
    options = json.loads(given)
    spark = local_session("shared copy", Path(folder).with_suffix(".spark"))
    query = (
        spark.readStream.format("kafkalog")
        .options(**options["source"])
        .load()
        .select("value")
        .writeStream.format("kafkalog")
        .options(**options["sink"])
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        print(error, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
