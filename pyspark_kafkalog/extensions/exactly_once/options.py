"""The options by which a write to brokers is exactly once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.brokers import MAX_IN_FLIGHT_IF_IDEMPOTENT, ProduceOptions
from pyspark_kafkalog.options.contracts import Delivery
from pyspark_kafkalog.options.table import DEFAULTS, from_option
from pyspark_kafkalog.options.user_options import UserOptions

if TYPE_CHECKING:
    from pyspark_kafkalog.model import QueryBatch
    from pyspark_kafkalog.model.sinks import Sink
    from pyspark_kafkalog.options.settings import WriteOptions

_ONLY_EXACTLY_ONCE = (
    "txnAppId",
    "stagingLocation",
    "failOnMissingMarker",
    "commitSourceOffsets",
)


@dataclass(frozen=True, slots=True)
class TransactionOptions(Delivery):
    """The options of exactly once. Locations are not shown, because a URI may hold a secret."""

    timeout_ms: int = from_option("kafka.transaction.timeout.ms")
    fail_on_missing_marker: bool = from_option("failOnMissingMarker")
    staging_location: str | None = field(default=None, repr=False)
    checkpoint_location: str | None = field(default=None, repr=False)
    source_group: str | None = None
    """See :attr:`.contracts.Delivery.source_group`."""
    is_job: bool = False
    """Whether a job names the batches, rather than a checkpoint."""

    def check_stream(self) -> None:
        """See :meth:`.contracts.Delivery.check_stream`."""
        if not (self.checkpoint_location or self.staging_location):
            raise OptionError(
                "Option 'delivery.guarantee': exactly-once needs 'checkpointLocation' or 'stagingLocation'",
                hint="Give the checkpoint as an option of writeStream, even if Spark has a default for it:"
                " Spark does not pass the default to its sink.",
            )

    def open_sink(self, options: WriteOptions, batch: QueryBatch | None) -> Sink[Any]:
        """See :meth:`.contracts.Delivery.open_sink`."""
        from pyspark_kafkalog.extensions.exactly_once.sink import TransactionalSink

        assert options.brokers is not None
        assert options.produce is not None
        return TransactionalSink.on_driver(
            options.brokers, options.produce, options.encode_settings, self, batch
        )


def transaction_options(user: UserOptions, produce: ProduceOptions) -> TransactionOptions | None:
    """The options of a writer to brokers for exactly once; None if it writes at least once.

    :raises OptionError: for options that contradict each other, or have no effect.
    """
    if user.value("delivery.guarantee") != "exactly-once":
        needless = [name for name in _ONLY_EXACTLY_ONCE if user.value(name) != DEFAULTS[name.lower()]]
        if needless:
            raise OptionError(
                f"Option {needless[0]!r} needs delivery.guarantee=exactly-once",
                hint="Set that, or leave it out.",
            )
        return None
    if not produce.enable_idempotence:
        raise OptionError(
            "Option 'delivery.guarantee': exactly-once needs kafka.acks=all, kafka.retries above 0,"
            " kafka.enable.idempotence=true and"
            f" kafka.max.in.flight.requests.per.connection up to {MAX_IN_FLIGHT_IF_IDEMPOTENT}",
            hint="Leave these out: they are the defaults.",
        )
    checkpoint = user.value("checkpointLocation")
    if "txnAppId" in user and not (checkpoint or "stagingLocation" in user):
        raise OptionError(
            "Option 'txnAppId' needs 'stagingLocation'",
            hint="It is also where the job keeps what it must remember from one batch to the next.",
        )
    group = user.value("kafka.group.id")
    commits_sources = user.value("commitSourceOffsets") == "transaction"
    if commits_sources and (group is None or checkpoint is None):
        missing = "kafka.group.id" if group is None else "checkpointLocation"
        raise OptionError(
            f"Option 'commitSourceOffsets' needs {missing!r}",
            hint="The offsets of a micro-batch are in the checkpoint, and go to the group.",
        )
    return user.fill(
        TransactionOptions,
        staging_location=user.value("stagingLocation"),
        checkpoint_location=checkpoint,
        source_group=group if commits_sources else None,
        is_job="txnAppId" in user,
    )
