"""Whether a batch is one that a sink has, follows it, or is of another history."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.model import Plan
from pyspark_kafkalog.model.sinks import LastBatch, Standing, standing

PLAN = Plan("five", before="four")


@pytest.mark.parametrize(
    ("last", "plan", "of_a_query", "of_a_job"),
    [
        (LastBatch(6, "five"), PLAN, Standing.AHEAD, Standing.AHEAD),
        (LastBatch(3, "four"), PLAN, Standing.BEHIND, Standing.NEXT),
        (LastBatch(4, "four"), PLAN, Standing.NEXT, Standing.NEXT),
        (LastBatch(4, "other"), PLAN, Standing.OTHER, Standing.NEXT),
        (LastBatch(4, "four"), Plan("five"), Standing.OTHER, Standing.NEXT),
        (LastBatch(4, "four"), Plan(None), Standing.NEXT, Standing.NEXT),
        (LastBatch(4, ""), PLAN, Standing.NEXT, Standing.NEXT),
        (LastBatch(5, "five"), PLAN, Standing.SAME, Standing.SAME),
        (LastBatch(5, "other"), PLAN, Standing.OTHER, Standing.OTHER),
        (LastBatch(5, ""), PLAN, Standing.UNKNOWN, Standing.SAME),
        (LastBatch(5, "five"), Plan(None), Standing.UNKNOWN, Standing.SAME),
        (LastBatch(5, ""), Plan(None), Standing.UNKNOWN, Standing.SAME),
        (LastBatch(5, "five"), Plan(), Standing.UNKNOWN, Standing.SAME),
        (LastBatch(5, ""), Plan(), Standing.SAME, Standing.SAME),
    ],
)
def test_how_batch_five_stands(last: LastBatch, plan: Plan, of_a_query: Standing, of_a_job: Standing) -> None:
    assert standing(5, plan, last) is of_a_query
    assert standing(5, plan, last, is_job=True) is of_a_job
