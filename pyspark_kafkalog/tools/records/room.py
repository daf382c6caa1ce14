"""``kafka.records``: records and record batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark_kafkalog.client.partitions import EVERY_TOPIC, partitions_of
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.large_messages.options import assembler_settings
from pyspark_kafkalog.extensions.typed_values.options import ID_COLUMNS
from pyspark_kafkalog.model import OffsetRange, OnCorrupt, TopicPartition
from pyspark_kafkalog.options.arguments import check_kind, check_partitions, check_selection
from pyspark_kafkalog.options.settings import Selection, read_options
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.places import check_usable

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.client.kafka import Kafka
    from pyspark_kafkalog.codec.decode import DecodeLimits
    from pyspark_kafkalog.tools.care.verify import VerifiedPartition
    from pyspark_kafkalog.tools.records.dump import DumpedBatch
    from pyspark_kafkalog.tools.records.select import RecordSelection
    from pyspark_kafkalog.tools.redrive.redrive import Redriven


_log = logging.getLogger("pyspark_kafkalog")


def _log_note(note: str) -> None:
    _log.warning("%s", note)


class Records:
    """``kafka.records``: what is in topics, as it is stored and as rows."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._kafka.name})"

    @property
    def _limits(self) -> DecodeLimits:
        from pyspark_kafkalog.codec.decode import DecodeLimits  # loads numpy and pyarrow

        return DecodeLimits(max_record_bytes=self._kafka.place_options.max_record_bytes)

    def select(
        self,
        topic: str,
        selection: RecordSelection | None = None,
        *,
        columns: Collection[str] | None = None,
        follow: bool = False,
        skip_damaged: bool = False,
        progress: Callable[[int, int], None] | None = None,
        on_note: Callable[[str], None] = _log_note,
    ) -> pa.RecordBatchReader:
        """The selected records of ``topic``, as :meth:`Kafka.read` gives them; no batch is empty.

        They come partition by partition, each in the order of its offsets; with ``tail``, by timestamp over
        all partitions. With ``follow``, new records come after them as they arrive, without end. Keys and
        values are decoded if the options of the place give them a format; conditions on them look at the
        bytes.

        :param selection: all records by default.
        :param columns: those of a DataFrame; all by default.
        :param skip_damaged: log damaged bytes and lost offsets and leave them out, instead of raising. A key
            or value that can't be decoded is a struct of nulls.
        :param progress: called with the offsets that were read since the last call, and those in all.
        :param on_note: called once with each note: that records of aborted transactions or message segments
            were read, or that no partition has the first offset of the selection. By default these are
            logged.
        :raises OptionError: for options that are malformed, or have no effect on this selection.
        :raises UnknownTopicOrPartitionError: if the topic, or a partition of the selection, does not exist.
        :raises CorruptRecordError: at damaged bytes, and at what can't be decoded.
        :raises OversizedRecordError: at a record of more than ``maxRecordBytes``, always.
        :raises DataLossError: if records are deleted while they are read.
        """
        from pyspark_kafkalog.tools.records.select import ALL_RECORDS, COLUMNS, RecordSelection, read_records

        check_kind(topic, str, 'the name of one topic, such as "orders"')
        selection = ALL_RECORDS if selection is None else selection
        check_kind(selection, RecordSelection, "RecordSelection(tail=10)")
        given = UserOptions(self._kafka.options, Use.ADMIN)
        given.check_names()
        settings = assembler_settings(given)
        if settings.deserializer is not None and not selection.large_messages:
            raise OptionError(
                "Option 'segment.deserializer.class' is set, but large messages are not put together",
                hint="Give --large-messages, or RecordSelection(large_messages=True).",
            )
        formats = None
        if any(f"{column}.{part}" in given for column in ID_COLUMNS for part in ("format", "schema")):
            # The column of corrupt records is not read, but with it a foreign schema ends nothing.
            mode = {"includeCorrupt": "true"} if skip_damaged else {"mode": "FAILFAST"}
            formats = read_options({**self._kafka.options, "subscribe": topic, **mode}, batch=True)
        return read_records(
            self._kafka.place,
            topic,
            selection,
            settings=settings,
            limits=self._limits,
            formats=formats,
            columns=COLUMNS if columns is None else columns,
            follow=follow,
            skip_damaged=skip_damaged,
            progress=progress,
            check=partial(check_usable, self._kafka.place_options),
            on_note=on_note,
        )

    def count(
        self,
        topic: str,
        selection: RecordSelection | None = None,
        *,
        skip_damaged: bool = False,
        on_note: Callable[[str], None] = _log_note,
    ) -> int:
        """The number of records of ``topic`` that are selected; see :meth:`select`."""
        found = self.select(topic, selection, columns=("offset",), skip_damaged=skip_damaged, on_note=on_note)
        return sum(rows.num_rows for rows in found)

    def batches(
        self,
        selection: Selection = EVERY_TOPIC,
        *,
        columns: Collection[str] | None = None,
        check_crcs: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The record batches, a row each, in order of partition and offset.

        Reads headers only, at the speed of the disk. Bytes that are not a batch are skipped, with a warning
        in the log; :meth:`verify` tells more.

        :param columns: those of ``view=batches`` to make, in this order; all by default.
        :param check_crcs: whether to verify checksums for the column ``valid``, which is null without.
        :raises OptionError: for a column that does not exist.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist.
        """
        from pyspark_kafkalog.extensions.views.batch_headers import batches

        check_selection(selection)
        return batches(
            self._kafka.place,
            selection,
            columns=columns,
            check_crcs=check_crcs,
        )

    def dump(
        self,
        partition: TopicPartition,
        offsets: OffsetRange | None = None,
        *,
        records: bool = False,
        on_corrupt: OnCorrupt | None = None,
    ) -> Iterator[DumpedBatch]:
        """The batches that hold any of ``offsets``, in order; all batches by default (DumpLogSegments).

        :param records: whether to decode the records among ``offsets``, too.
        :param on_corrupt: called for bytes that are not a batch; they are skipped.
        :raises UnknownTopicOrPartitionError: if the partition does not exist.
        :raises CorruptRecordError: for such bytes, if ``on_corrupt`` is None.
        :raises OversizedRecordError: at a record of more than ``maxRecordBytes``, if ``records`` are decoded.
        :raises DataLossError: if some of the offsets were deleted meanwhile.
        """
        from pyspark_kafkalog.tools.records.dump import dump

        check_kind(partition, TopicPartition, 'dump(TopicPartition("orders", 0))')
        if offsets is not None:
            check_kind(offsets, OffsetRange, 'dump(TopicPartition("orders", 0), OffsetRange(0, 100))')
        return dump(
            self._kafka.place, partition, offsets, limits=self._limits, records=records, on_corrupt=on_corrupt
        )

    def verify(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[VerifiedPartition]:
        """Read each partition from start to end, and check all that can be checked.

        Brokers are asked as for a report: what they do not give within seconds is the ``problem`` of its row.

        :param partitions: all by default, internal ones too; those deleted meanwhile are left out.
        :param progress: called with the size of each stretch of bytes that was read.
        """
        from pyspark_kafkalog.tools.care.verify import verify

        check_partitions(partitions)
        place = self._kafka.report_place
        wanted = partitions_of(place, internal=True) if partitions is None else partitions
        return verify(place, wanted, limits=self._limits, progress=progress)

    def redrive(
        self, topic: str, *, group: str = "kafkalog-redrive", first: bool = False, execute: bool = False
    ) -> list[Redriven]:
        """Send the dead letters in ``topic`` back to the topics that they came from.

        Their headers ``__connect.errors.topic`` and ``__connect.errors.partition`` say where that is: those
        of Kafka Connect and of :func:`pyspark_kafkalog.dead_letters`. These headers are left out; key, value,
        timestamp and the others are as they were. Records without such a header stay.

        Each is sent once, even if a run is killed, or two run at once: to brokers in transactions, to a
        directory all of a batch at once.

        :param group: the consumer group that knows what has been sent. Brokers forget it some time after the
            last run (offsets.retention.minutes).
        :param first: that nothing was sent with this group yet, at least from partitions for which it has no
            commits. By default these are refused: brokers may have forgotten the group.
        :param execute: whether to do it; else nothing is changed.
        :return: what there was to send, of each partition and to each topic.
        :raises UnknownTopicOrPartitionError: if one of the topics does not exist; nothing is sent then.
        :raises GroupError: if the group has live members, its offsets are those of another log, it has none
            and this is not the first run, or another run goes on.
        """
        from pyspark_kafkalog.tools.redrive.redrive import redrive

        return redrive(self._kafka.options, topic, group=group, first=first, execute=execute)
