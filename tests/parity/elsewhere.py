"""Cases of Spark's suites that are not run for both formats: why, or where they are tested."""

from __future__ import annotations

from tests.parity.case import Elsewhere
from tests.parity.suites import DATA_LOSS, MICRO_BATCH_V2, PROVIDER, READER, RELATION, STRATEGY, STREAM_SINK

_CONTINUOUS = "Spark has no continuous mode for Python sources and sinks."
_REAL_TIME = "Spark has no real-time mode for Python sources."
_V1 = "Spark has only V2 for Python sources; the peer's V1 and V2 are not distinguished here."
_POOLS = "Concerns objects that the peer keeps in the JVM; `tests/broker` tests how ours keeps connections."
_SPLITTING = "`tests/read/test_splits.py`"
_OFFSETS_JSON = "`tests/options/test_offsets_json.py`"
_LISTENER = "`tests/tools/groups/test_lag.py`, for what `LagListener` reports."

ELSEWHERE = [
    Elsewhere("KafkaMicroBatchV1SourceSuite", ("V1 Source is used when disabled through SQLConf",), _V1),
    Elsewhere(MICRO_BATCH_V2, ("V2 Source is used by default",), _V1),
    Elsewhere(
        MICRO_BATCH_V2,
        (
            "test custom metrics - corner cases",
            "SPARK-57438: metrics should not NPE when latestPartitionOffsets is null",
        ),
        _LISTENER,
    ),
    Elsewhere(
        RELATION,
        (
            "V1 only: V1 Source is used when set through SQLConf",
            "V2 only: V2 Source is used when set through SQLConf",
        ),
        _V1,
    ),
    Elsewhere(
        STREAM_SINK,
        ("continuous only: generic - write big data with small producer buffer",),
        _CONTINUOUS,
    ),
    Elsewhere(
        DATA_LOSS,
        (
            "failOnDataLoss=false should not return duplicated records: microbatch v1",
            "failOnDataLoss=false should not return duplicated records: batch v2",
        ),
        _V1,
    ),
    Elsewhere(
        DATA_LOSS,
        (
            "failOnDataLoss=false should not return duplicated records: continuous processing",
            "KafkaContinuousSourceStressForDontFailOnDataLossSuite: stress test for failOnDataLoss=false",
        ),
        _CONTINUOUS,
    ),
    Elsewhere(
        "KafkaOffsetRangeCalculatorSuite",
        (
            "with no minPartition: N TopicPartitions to N offset ranges",
            "with no minPartition: empty ranges ignored",
            "min 3: N TopicPartitions to N offset ranges",
            "min 4: 1 TopicPartition to N offset ranges",
            "min 4: N skewed TopicPartitions to M offset ranges",
            "min 4: SPARK-30656: ignore empty ranges and split the rest",
            "min 4: SPARK-30656: N very skewed TopicPartitions to M offset ranges",
            "min 1: SPARK-30656: minPartitions less than the length of topic partitions",
            "min 3: range inexact multiple of minPartitions",
            "min 4: empty ranges ignored",
            "min 6: SPARK-28489: never drop offsets",
            "min 9: SPARK-36576: 0 small unsplit ranges and 3 large split ranges",
            "min 6: SPARK-36576: 1 small unsplit range and 2 large split ranges",
            "min 6: SPARK-36576: 2 small unsplit ranges and 1 large split range",
            "max 4: SPARK-49259: 1 TopicPartition to N offset ranges",
            "max 20: SPARK-49259: N TopicPartition to N offset ranges",
            "min 1, max 20: SPARK-49259: 1 TopicPartition with low minPartitions value",
            "min 4, max 20: SPARK-49259: 1 TopicPartition with high minPartitions value",
        ),
        _SPLITTING,
    ),
    Elsewhere(
        "KafkaOffsetRangeCalculatorSuite",
        ("min 3: N TopicPartitions to N offset ranges with executors",),
        f"The sizes in {_SPLITTING}. Python sources can't choose where a task runs.",
    ),
    Elsewhere(
        READER,
        (
            "SPARK-55561: fetchPartitionOffsets retries on transient failures",
            "SPARK-55561: fetchPartitionOffsets throws after all retries exhausted",
        ),
        "`tests/broker`",
    ),
    Elsewhere(STRATEGY, ("createAdmin must create admin properly",), _POOLS),
    Elsewhere("JsonUtilsSuite", ("parsing partitions", "parsing partitionOffsets"), _OFFSETS_JSON),
    Elsewhere(
        "KafkaSourceOffsetSuite",
        ("basic serialization - deserialization", "read Spark 2.1.0 offset format"),
        _OFFSETS_JSON,
    ),
    Elsewhere(
        "KafkaSourceOffsetSuite",
        ("OffsetSeqLog serialization - deserialization",),
        "For Python sources, too, Spark writes the log; its lines are compared below, between the formats.",
    ),
    Elsewhere(
        PROVIDER,
        ("continuous mode - options should be handled as case-insensitive",),
        _CONTINUOUS,
    ),
    Elsewhere("KafkaSparkConfSuite", ("deprecated configs",), _POOLS),
    Elsewhere(
        "KafkaContinuousSourceSuite",
        (
            "read Kafka transactional messages: read_committed",
            "read Kafka transactional messages: read_uncommitted",
            "SPARK-27494: read kafka record containing null key/values.",
            "subscribing topic by pattern with topic deletions",
            "ensure continuous stream is being used",
        ),
        _CONTINUOUS,
    ),
    Elsewhere(
        "KafkaRealTimeModeSuite",
        (
            "simple map",
            "with empty batch",
            "add partition",
            "latestOffset fetched again at end of batch",
            "options that are incompatible (5)",
            "union of 2",
            "union of 3",
            "self union workaround",
            "self union not allowed",
            "two different sources",
            "SPARK-54200: consumer pool reuse",
            "union to foreach",
            "e2e stateless",
        ),
        _REAL_TIME,
    ),
    Elsewhere(
        "KafkaDataConsumerSuite",
        (
            "SPARK-19886: error cause",
            "new instance on task retry",
            "same instance for same token",
            "new instance on token renewal",
            "SPARK-23623: concurrent use",
            "SPARK-25151: several tasks on one partition (3)",
        ),
        _POOLS,
    ),
    Elsewhere("FetchedDataPoolSuite", ("all cases (5)",), _POOLS),
    Elsewhere("InternalKafkaConsumerPoolSuite", ("all cases (5)",), _POOLS),
    Elsewhere("InternalKafkaProducerPoolSuite", ("all cases (4)",), _POOLS),
    Elsewhere(
        "KafkaDelegationTokenSuite",
        ("Roundtrip",),
        "Spark passes delegation tokens only to its JVM sources.",
    ),
]
"""In the order of the table."""
