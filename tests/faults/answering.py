"""How applications that tests kill report the end of their queries."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery


def answer_at_the_end_of(queries: Iterable[StreamingQuery]) -> None:
    """Print "done" once all have ended, or "failed" if any of them did."""
    answer = "done"
    for query in queries:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print(error, file=sys.stderr)
            answer = "failed"
    print(answer, flush=True)
