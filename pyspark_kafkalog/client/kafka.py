"""The object for a log directory or a cluster: its topics, groups, records, and the upkeep of its logs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark_kafkalog import tools
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import BrokerState, Place
from pyspark_kafkalog.model.rows import Rows
from pyspark_kafkalog.options.settings import PlaceOptions, place_options, selects_topics, several_or_none
from pyspark_kafkalog.options.table import SERVERS, ZOOKEEPER, Use, Where
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.options.values import check_system
from pyspark_kafkalog.places import open_place, open_report
from pyspark_kafkalog.saying import show_warnings

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.client.read import Changes, Filters, RecordSplit

_LISTENER = r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?"
_ADDRESS = r"(?:\[[0-9a-fA-F:.%\w-]+\]|[\w.-]+):[0-9]{1,5}"
_HOST = rf"(?:(?:https?|kafka)://|{_LISTENER}){_ADDRESS}"
_BROKERS = re.compile(rf"{_HOST}(?:,{_HOST})*", re.ASCII)
_PORTLESS = re.compile(
    _LISTENER + r"(?:localhost|\[[0-9a-fA-F:.]+\]|[0-9]+(?:\.[0-9]+){3}|[\w-]+(?:\.[\w-]+)+\.[a-z]{2,})",
    re.ASCII,
)
"""A host without the port, which can hardly be a folder's name."""
_CHROOT = re.compile(rf"{_ADDRESS}(?:,{_ADDRESS})*/.*", re.ASCII)
"""Brokers with a path behind them, as only ZooKeeper has one."""
_ZOOKEEPER_SCHEME = "zk://"
_CREDENTIALS = re.compile(r"(?<=://)[^,]*@|\?[^,]*")
"""The login of a URI, up to its last @, and its query."""
_LOGIN = re.compile(rf"{_LISTENER}(?![/.~]|\w+://).*@{_HOST}(?:,.*)?", re.ASCII | re.DOTALL)
"""Brokers with a login before one of them, which no client of Kafka takes."""


def connect(place: str | os.PathLike[str] | Mapping[str, str]) -> Kafka:
    """A log directory, or a cluster.

    ::

        from pyspark_kafkalog import NewTopic, connect

        with connect("host:9092") as kafka:  # or a log directory: connect("/data/kafka-logs")
            kafka.topics.create([NewTopic("orders", partitions=3)])
            print(kafka.groups.lags())

    :param place: the path or URI of a log directory; brokers as ``host:port[,host:port]``; ZooKeeper as
        ``zk://host:port[,host:port]/chroot``, which has only groups; or options of a reader, such as
        ``{"kafka.bootstrap.servers": "host:9093", "kafka.security.protocol": "SSL"}``.
    :raises OptionError: for invalid options. A place that can't be reached shows when it is first asked.
    """
    if isinstance(place, Mapping):
        _check_names_one(UserOptions(place, Use.ADMIN))
        return Kafka(place)
    if not isinstance(place, str | os.PathLike):
        raise _not_a_place(place)
    if not os.fsdecode(place).strip():
        raise OptionError(
            "Expected a place, got an empty text",
            hint='Write connect("host:9092"), or connect("/data/kafka-logs") for a folder.',
        )
    return Kafka(options_of(os.fsdecode(place)))


def _check_names_one(given: UserOptions) -> None:
    """Refuse options that name no place, or two."""
    if "path" in given and SERVERS in given:
        raise OptionError(f"Only one of 'path' and {SERVERS!r} can be given", hint="Leave one out.")
    if not any(name in given for name in ("path", "paths", SERVERS, ZOOKEEPER)):
        given.check_servers_name()
        raise OptionError(
            "The options name no place",
            hint=f'Write connect({{"{SERVERS}": "host:9092"}}), or connect("/data/kafka-logs") for a folder.',
        )


def _not_a_place(place: object) -> OptionError:
    """The error for anything else; texts in it may be secrets, unless they name brokers."""
    hint = 'Write connect("host:9092"), connect("/data/kafka-logs"), or options: connect({"path": "/data"}).'
    if isinstance(place, list | tuple | set) and place and all(isinstance(each, str) for each in place):
        if all(map(names_brokers, place)):
            hint = f'Brokers are one text: connect("{",".join(place)}").'
        else:
            hint = """Several folders are options: connect({"path": '["/data/1", "/data/2"]'})."""
    return OptionError(f"Expected a place as text or as options, got {type(place).__name__}", hint=hint)


def options_of(place: str) -> dict[str, str]:
    """The option that names a place: ``path``, ``kafka.bootstrap.servers`` or ``zookeeper.connect``.

    :raises OptionError: for brokers without a port, for those with a login, without quoting it, and for a
        path of Windows.
    """
    check_system("Expected", place)
    if _is_folder(place):
        return {"path": json.dumps([place])}  # its name may have commas
    if place.lower().startswith(_ZOOKEEPER_SCHEME):
        return {ZOOKEEPER: place[len(_ZOOKEEPER_SCHEME) :]}
    if _LOGIN.fullmatch(place):
        raise OptionError(
            "Expected brokers as host:port, got something before an @, which may be a secret",
            hint="Give a login as client properties, such as sasl.jaas.config, in a file: --config FILE.",
        )
    servers = re.sub(r"\s*,\s*", ",", place.strip())  # as Kafka's clients read them
    if names_brokers(servers):
        return {SERVERS: servers}
    if _CHROOT.fullmatch(place):
        raise OptionError(
            f"Expected brokers as host:port without a path, got {place!r}",
            hint=f"ZooKeeper with a chroot is {_ZOOKEEPER_SCHEME}{place}. A folder would be ./{place}.",
        )
    listed = re.split(r"[;\s]+", place)
    if len(listed) > 1 and all(map(names_brokers, listed)):
        raise OptionError(
            f"Brokers are separated by commas, got {place!r}", hint=f"Write {','.join(listed)}."
        )
    for host in place.split(","):
        if _PORTLESS.fullmatch(host):
            raise OptionError(
                f"Brokers need a port, got {host!r}", hint=f"Write {host}:9092. A folder would be ./{host}."
            )
    return {"path": place}


def names_brokers(place: str) -> bool:
    """Whether a place has the form of brokers: host:port[,host:port]."""
    return _BROKERS.fullmatch(place) is not None


def _is_folder(place: str) -> bool:
    try:
        return os.path.isdir(place)
    except ValueError:
        return False


class Kafka:
    """A log directory or a cluster, for one thread; :func:`connect` makes it. It opens what it needs.

    ``topics``, ``groups``, ``checkpoints``, ``records`` and ``logs`` have what can be done with each of them.
    Rows are lists, which a notebook shows as tables.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        UserOptions(options, Use.ADMIN | Use.READ | Use.WRITE).check_names()
        self.options = dict(options)
        show_warnings()

    @property
    def name(self) -> str:
        """The place as it was given, without what may be credentials in a URI."""
        for option, before in (SERVERS, ""), (ZOOKEEPER, _ZOOKEEPER_SCHEME):
            if option in self.options:
                return f"{before}{self.options[option]}"
        path = self.options.get("path", "")
        with suppress(ValueError):
            path = ", ".join(json.loads(path))
        return _CREDENTIALS.sub("", path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    def __enter__(self) -> Kafka:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop what was opened. A later call opens it again."""
        for name in ("place", "topics", "groups", "checkpoints", "records", "logs"):
            self.__dict__.pop(name, None)

    @cached_property
    def place_options(self) -> PlaceOptions:
        """The options that say where the place is, and how to reach it.

        :raises OptionError: for options that are only for reading or writing records.
        """
        UserOptions(self.options, Use.ADMIN).check_names()
        return place_options(self.options)

    @property
    def source_options(self) -> PlaceOptions:
        """The options of a source: in a backup, offsets of groups don't expire unless the user says so."""
        if "offsets.retention.minutes" in UserOptions(self.options, Use.ADMIN):
            return self.place_options
        return replace(self.place_options, offsets_retention_minutes=None)

    @cached_property
    def place(self) -> Place:
        """The place that all readers ask: offsets, timestamps, leader epochs and record batches."""
        return open_place(self.place_options)

    @property
    def report_place(self) -> Place:
        """The place for one report, which asks once, and says of each partition why it did not answer."""
        return open_report(self.place_options)

    def brokers(self) -> list[BrokerState]:
        """The brokers of a cluster, sorted by id. Each is tried, to see whether it answers from here.

        :raises OptionError: for a log directory, which has none.
        :raises BrokerError: if no broker answers.
        """
        if self.place_options.brokers is None:
            raise OptionError("A log directory has no brokers", hint="Name brokers, as host:port.")
        return Rows(BrokerState, tools.describe_brokers(self.place_options.brokers.of_report))

    def doctor(self) -> tools.Report:
        """The findings about what keeps this machine from reading and writing the place, and what to do.

        ::

            from pyspark_kafkalog import connect

            print(connect("host:9092").doctor())

        It needs no Spark; :func:`pyspark_kafkalog.doctor` looks at a session and its executors, too. Each
        line that is not fine says what to do, and ``ok`` is true if there is no problem. A place that can't
        be reached is one of these.

        :raises OptionError: if an option is wrong.
        """
        return tools.examine(self.options)

    def read(
        self,
        topic: str | None = None,
        *,
        columns: Collection[str] | None = None,
        filters: Filters | None = None,
        options: Mapping[str, str] | None = None,
    ) -> pa.RecordBatchReader:
        """The records that are there now, as Arrow for pyarrow, DuckDB, Polars; ``read_pandas()`` for pandas.

        Records of aborted transactions are among them, and a warning counts these, unless
        ``kafka.isolation.level`` is ``read_committed``.

        ::

            import pyarrow as pa
            from pyspark_kafkalog import connect

            with connect("/tmp/kafka-logs") as kafka:
                kafka.write(pa.table({"value": [b"12.50"]}), "orders")
                print(kafka.read("orders", columns=["offset", "value"]).read_all())

        :param topic: the same as the option ``subscribe``.
        :param columns: those of a DataFrame; all but ``headers`` by default.
        :param filters: conditions that every row meets: column, one of ``= < <= > >= != in``, and a value.
            Times have a zone. Partitions and offsets that can't match are not read.
        :param options: those of ``spark.read``, such as ``startingOffsets``.
        :raises OptionError: for invalid options, columns and filters.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist.
        :raises DataLossError: if offsets are gone, and :class:`CorruptRecordError` at damaged bytes, both
            unless ``failOnDataLoss`` is false.
        """
        from pyspark_kafkalog.client.read import read

        return read(self._of_read(topic, options, 'read("orders")'), several_or_none(columns), filters)

    def plan(
        self,
        topic: str | None = None,
        *,
        columns: Collection[str] | None = None,
        filters: Filters | None = None,
        options: Mapping[str, str] | None = None,
    ) -> list[RecordSplit]:
        """The same read in splits, which other processes carry out: they can be pickled.

        ``minPartitions``, ``maxPartitions`` and ``maxRecordsPerPartition`` say how many. Parameters and
        errors are those of :meth:`read`.
        """
        from pyspark_kafkalog.client.read import plan

        return plan(self._of_read(topic, options, 'plan("orders")'), several_or_none(columns), filters)

    def changes(
        self,
        topic: str | None = None,
        *,
        group: str,
        columns: Collection[str] | None = None,
        filters: Filters | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Changes:
        """The records since the last commit of ``group``; the end of ``with`` commits them, at least once.

        ::

            from pyspark_kafkalog import connect

            with connect("/tmp/kafka-logs") as kafka, kafka.changes("orders", group="etl") as changes:
                print(changes.read().read_all())

        A group that has committed nothing begins at the start of the logs, or where
        ``startingOffsetsByCommittedStrategy`` says. Rows that ``filters`` leave out count as read, except in
        partitions that they rule out altogether. Other parameters and errors are those of :meth:`read`.

        :raises OptionError: for options that say where to start or end.
        :raises GroupError: if a commit does not belong to the log that is there, or the group has live
            members; at the end if nothing is committed, as :class:`.Changes` says.
        """
        from pyspark_kafkalog.client.read import Changes

        given = self._of_read(topic, options, f'changes("orders", group="{group}")')
        return Changes(given, group, several_or_none(columns), filters)

    def write(
        self,
        rows: pa.RecordBatchReader | pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
        topic: str | None = None,
        *,
        options: Mapping[str, str] | None = None,
    ) -> int:
        """Write rows as records, and return how many.

        Each batch is sent before the next one is taken. A log directory shows all records at once, after the
        last one; brokers show them as they come, unless ``delivery.guarantee`` is ``exactly-once``.

        :param rows: a table, a reader or batches of Arrow, or a frame that gives them, with any columns that
            ``df.write`` takes. Times may have any unit, and partitions any kind of integer.
        :param topic: where all rows go; without it, where their column ``topic`` says.
        :param options: those of ``df.write``.
        :raises OptionError: for invalid options.
        :raises KafkaLogError: if the write fails; its hint says how many records are visible nevertheless.
        """
        from pyspark_kafkalog.client.write import write

        if not isinstance(topic, str | None):
            raise OptionError(
                f"Expected the name of a topic, got {type(topic).__name__}",
                hint="Rows come first: write(rows, topic).",
            )
        return write(self._with(options, topic=topic), rows)

    def _of_read(self, topic: str | None, options: Mapping[str, str] | None, call: str) -> dict[str, str]:
        """The options of a read of records by ``call``, which must say which topics it is of."""
        found = self._with(options, subscribe=topic)
        user = UserOptions(found, Use.BATCH_READ)
        if user.where is Where.BROKERS and not user.is_zookeeper and not selects_topics(user):
            raise OptionError(
                "No topic is named", hint=f"Write {call}. topics.partitions() of connect() lists the topics."
            )
        return found

    def _with(self, options: Mapping[str, str] | None, **more: str | None) -> dict[str, str]:
        """The options of the place, and those of one call.

        :raises OptionError: for ``view``, and where two name the topic.
        """
        if not isinstance(options, Mapping | None):
            raise OptionError(
                f"Expected options as a dict, got {type(options).__name__}",
                hint='Write, for example, options={"startingOffsets": "earliest"}.',
            )
        named = {name: value for name, value in more.items() if value is not None}
        for name in options or ():
            if name.lower() in named and (options or {})[name] != named[name.lower()]:
                raise OptionError(
                    f"The topic is {named[name.lower()]!r}, and option {name!r} names others",
                    hint="Leave one of them out.",
                )
        found = {**self.options, **(options or {}), **named}
        if "view" in {name.lower() for name in found}:
            raise OptionError(
                "Only Spark reads views",
                hint="Leave out the option 'view'. connect().topics, groups and records have the same rows.",
            )
        return found

    @cached_property
    def topics(self) -> tools.TopicAdmin:
        """Topics and their partitions."""
        return tools.TopicAdmin(self)

    @cached_property
    def groups(self) -> tools.GroupAdmin:
        """Consumer groups and their offsets."""
        return tools.GroupAdmin(self)

    @cached_property
    def checkpoints(self) -> tools.CheckpointAdmin:
        """Checkpoints of streaming queries that read the place."""
        return tools.CheckpointAdmin(self)

    @cached_property
    def records(self) -> tools.Records:
        """Records and record batches."""
        return tools.Records(self)

    @cached_property
    def logs(self) -> tools.LogCare:
        """The upkeep of logs: backup, restore, repair, retention and compaction."""
        return tools.LogCare(self)
