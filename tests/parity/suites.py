"""The test suites of Spark's Kafka connector (4.2.0) that cases are taken from, and two of our own."""

from __future__ import annotations

SOURCE = "KafkaSourceSuiteBase"
MICRO_BATCH = "KafkaMicroBatchSourceSuiteBase"
MICRO_BATCH_V2 = "KafkaMicroBatchV2SourceSuite"
STRESS = "KafkaSourceStressSuite"
RELATION = "KafkaRelationSuiteBase"
STREAM_SINK = "KafkaSinkStreamingSuiteBase"
BATCH_SINK = "KafkaSinkBatchSuiteBase"
DATA_LOSS = "KafkaDontFailOnDataLossSuite"
READER = "KafkaOffsetReaderSuite"
STRATEGY = "ConsumerStrategySuite"
PROVIDER = "KafkaSourceProviderSuite"
EXCHANGE = "Between the formats"
BEYOND = "Beyond Spark's suites"

IN_ORDER = (
    SOURCE,
    MICRO_BATCH,
    MICRO_BATCH_V2,
    STRESS,
    RELATION,
    STREAM_SINK,
    BATCH_SINK,
    DATA_LOSS,
    READER,
    STRATEGY,
    PROVIDER,
    EXCHANGE,
    BEYOND,
)
