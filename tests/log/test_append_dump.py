"""Kafka's own DumpLogSegments finds nothing wrong with what is written."""

from __future__ import annotations

import numpy as np
import pytest

from pyspark_kafkalog.model import QueryBatch
from tests.codec.strategies import COMPRESSIONS
from tests.kafka import dump_log_segments
from tests.log.writing import T0, T1, publish_staged, stage, values, write

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def files(root, *suffixes):
    return [path for suffix in suffixes for path in sorted(root.glob(f"*/*{suffix}"))]


@pytest.mark.parametrize("sanity", [False, True])
def test_segments_and_indexes(tmp_path, sanity):
    times = np.random.default_rng(3).integers(1_600_000_000_000, 1_600_100_000_000, 20)
    for i, compression in enumerate(COMPRESSIONS * 2):
        for partition in (T0, T1):
            records = {partition: values(400, 100, 400 * i)}
            staged = stage(
                tmp_path, "job", records, timestamp=int(times[i]), compression=compression, batch_size=2000
            )
            publish_staged(tmp_path, staged, QueryBatch("job"), segment_bytes=30_000, log_append_time=i >= 5)
    write(tmp_path, {T0: values(3000, 100)}, index_interval_bytes=0)
    assert len(files(tmp_path, ".log")) > 6
    assert sum(path.stat().st_size for path in files(tmp_path, ".index")) > 50 * 8
    assert sum(path.stat().st_size for path in files(tmp_path, ".timeindex")) > 10 * 12
    printed = dump_log_segments(*files(tmp_path, ".log", ".index", ".timeindex"), sanity=sanity)
    for compression in COMPRESSIONS:
        assert f"compresscodec: {compression}" in printed.lower()
