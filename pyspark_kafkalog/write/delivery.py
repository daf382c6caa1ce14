"""How the rows of a write get to brokers: at least once, unless an extension does it exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing

if TYPE_CHECKING:
    from pyspark_kafkalog.model import QueryBatch
    from pyspark_kafkalog.model.sinks import Sink
    from pyspark_kafkalog.options.settings import WriteOptions


class Delivery(ExtensionOptions):
    """The sink of brokers. That of the core shows rows as they are written."""

    __slots__ = ()

    @property
    def source_group(self) -> str | None:
        """The group that gets the offsets that a micro-batch has read, with its rows; None for none."""
        return None

    def check_stream(self) -> None:
        """Check the options of a streaming query.

        :raises OptionError: if one is missing.
        """

    def open_sink(self, options: WriteOptions, batch: QueryBatch | None) -> Sink[Any]:
        """The sink of the brokers that the options name.

        :param batch: of a job, which begins now; None for a query.
        :raises KafkaLogError: if rows can't be kept where the options say.
        """
        from pyspark_kafkalog.broker.produce.sink import BrokerSink

        assert options.brokers is not None
        assert options.produce is not None
        return BrokerSink(options.brokers, options.produce, options.encode_settings)


def delivery_of(options: WriteOptions) -> Delivery:
    """How the rows of this write get to brokers."""
    return implementing(Delivery, options.extensions)
