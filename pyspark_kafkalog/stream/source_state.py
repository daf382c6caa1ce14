"""The state of a query's sources, stored beside its checkpoint. Spark stores only a Python source's offsets.

Spark tells a reader neither its number in the query nor its name, and the options that name its topics may be
spelled otherwise in each run. So each reader writes files of its own, one for each kind of fact, and finds a
topic in any file of the query: what counts is what the query stored last of the topic. Only where several
sources of the query have read a topic of the same name does a reader look whose file it is: its own, else one
of its place (a cluster's id, or directories). What can't be told apart then is refused.

A file has the query's id and the micro-batch that was planned last, so it is not taken for another query's,
nor for that of a log that was set back; and its turn: later runs have higher ones.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from pyspark_kafkalog.errors import UNREADABLE, KafkaLogError, listed
from pyspark_kafkalog.filesystem.folder import NEW_SUFFIX, Folder
from pyspark_kafkalog.filesystem.hadoop import locate_as_hadoop
from pyspark_kafkalog.filesystem.private import remove_file
from pyspark_kafkalog.model import BatchHeader, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets, to_json
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.stream.checkpoint import PlanDigest, QueryLog
from pyspark_kafkalog.stream.history import LastShared
from pyspark_kafkalog.stream.topic_ids import topics_of

_log = logging.getLogger("pyspark_kafkalog")

_VERSION = 3
_SUFFIX = ".json"
_MOST_READERS = 100
"""A query has fewer readers: what is as many turns older is of an earlier run."""


class _Kind(NamedTuple):
    folder: str
    what: str
    without: str = ""
    """The effect of a missing file, as a sentence."""


_STARTS = _Kind(
    "kafkalog-start-offsets",
    "start offsets",
    "If the first micro-batch is not complete, they are chosen again.",
)
_TOPIC_IDS = _Kind(
    "kafkalog-topic-ids", "topic ids", "Topics recreated since the last run then go unnoticed."
)
_SHARED = _Kind("kafkalog-shared", "last records")
_BEGINS = _Kind("kafkalog-begins", "beginnings")


class Reader(NamedTuple):
    """A reader among those of a query.

    :param place: says which cluster or directories it reads, however they are addressed.
    :param source: by what earlier versions have named its files.
    """

    place: str
    selection: Selection
    group: str | None = None
    source: tuple[object, ...] = ()


class _Stored(NamedTuple):
    """A file; ``place`` is None and ``turn`` 0 in those of versions before 3."""

    name: str
    place: str | None
    turn: int
    plan: PlanDigest | None
    content: Any

    @property
    def age(self) -> tuple[int, int]:
        """Later files have a higher one."""
        return self.turn, -1 if self.plan is None else self.plan.batch


class SourceState:
    """The files of one reader of a query, and what it finds in all of them.

    :param checkpoint_location: path or URI of the query's checkpoint.
    :raises KafkaLogError: if it isn't a checkpoint.
    """

    def __init__(self, checkpoint_location: str, reader: Reader) -> None:
        self._reader = reader
        self._place = _digest(reader.place)
        self._checkpoint = locate_as_hadoop(checkpoint_location)
        self._log = QueryLog(checkpoint_location)
        self._query_id = self._log.query_id()
        self._turns: dict[_Kind, int] = {}
        """The turns of the files that this run writes."""
        self._chosen: tuple[str, Offsets, PlanDigest | None] | None = None
        """Start offsets to store: under which name, and the newest plan when they were chosen."""
        self._unknown: set[str] = set()
        """Topics of which a warning has said that nothing is known."""
        self._tidied: set[_Kind] = {_STARTS}
        """Kinds without files of earlier runs. Those of starts count until a plan is complete."""

    def start_offsets(
        self, starting: object, choose: Callable[[], Offsets], others: object = None
    ) -> Offsets:
        """The start offsets of the reader: those stored before, else ``choose()``, which are stored.

        Once Spark has planned the reader's first micro-batch they are fixed, whatever ``starting`` says now.

        :param starting: the start option; its repr distinguishes it.
        :param others: the other options that decide where a reader of these topics starts.
        :raises KafkaLogError: if what is stored is corrupt, of another history, or can't be told apart.
        """
        newest = before = self._log.newest_plan()
        is_planned = newest is not None and not self._log.is_complete(newest.batch)
        if newest is not None and is_planned:
            before = self._log.plan_before(newest.batch)
        stored = [
            each
            for each in self._read(_STARTS, partial(parse_offsets, option="stored start offsets"))
            if (each.plan and each.plan.batch) == (before and before.batch)
        ]
        own, old = self._name(starting, others), (*self._reader.source, starting)
        names = own, _digest(old) + _SUFFIX
        if is_planned:
            found = self._start_of_planned(stored, names)
            if found is not None:
                return found
            _log.warning(
                "The start offsets for the micro-batch that Spark has planned are not stored beside its"
                " checkpoint (%s): they are chosen again",
                self._checkpoint.label(_STARTS.folder),
            )
            return choose()
        mine = [each for each in stored if each.name in names]
        offsets: Offsets = max(mine, key=lambda each: each.age).content if mine else choose()
        self._chosen = own, offsets, newest
        if newest is None:
            for each in stored:
                if each.turn < self._turns[_STARTS] - _MOST_READERS:
                    remove_file(self._checkpoint.child(_STARTS.folder), each.name)
            self.store_start_offsets()
        return offsets

    def store_start_offsets(self) -> None:
        """Store what :meth:`start_offsets` has chosen. Of a new query it does so itself."""
        if self._chosen is not None:
            name, offsets, plan = self._chosen
            self._write(_STARTS, name, to_json(offsets), plan)
            self._chosen = None

    def _start_of_planned(self, stored: list[_Stored], names: Collection[str]) -> Offsets | None:
        """The start offsets of a reader whose first micro-batch is planned, and not complete."""
        planned, covers = self._log.planned_ends(), self._reader.selection.covers
        covered = {topic for ends in planned for topic in topics_of(ends) if covers(topic)}
        if len(planned) > 1:  # of a start without partitions nothing tells what it is about
            overlapping = [each for each in stored if any(map(covers, topics_of(each.content)))]
            stored = overlapping or [each for each in stored if not each.content]
        readers = sum(not covered.isdisjoint(topics_of(ends)) for ends in planned)
        if readers > 1:
            stored = [each for each in stored if each.place in (None, self._place)] or stored
            stored = sorted(stored, key=lambda each: each.age)[-readers:]
            stored = [each for each in stored if each.name in names] or stored
            if any(each.content != stored[0].content for each in stored):
                raise self._ambiguous(_STARTS, covered)
        return self._newest(stored, names).content if stored else None

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that the query has read, as :meth:`store_topic_ids` stored them last.

        :raises KafkaLogError: if what is stored is corrupt, of another history, or can't be told apart.
        """
        stored = self._read(_TOPIC_IDS, _texts)
        found: dict[str, str] = {}
        unknown = []
        for topic, files in self._of_topics(stored).items():
            ids = {each.content[topic] for each in files}
            if len(ids) > 1:
                raise self._ambiguous(_TOPIC_IDS, [topic])
            if ids:
                found[topic] = ids.pop()
            else:
                unknown.append(topic)
        if stored:
            self._warn_of(unknown, _TOPIC_IDS)
        return found

    def store_topic_ids(self, topic_ids: Mapping[str, str], before: Mapping[str, str] | None = None) -> None:
        """Store the ids of the topics whose records the query has processed, for its next run.

        :param before: given while a micro-batch runs that changes them: those that count until its end.
        """
        self._write(_TOPIC_IDS, self._name(), topic_ids, self._log.newest_plan(), before)

    def shared(self) -> dict[TopicPartition, LastShared]:
        """The last shared positions of the query and its logs, as :meth:`store_shared` stored them.

        What another query stored, or a loss of power left, is not used: then nothing can be compared.
        """
        stored = self._read(_SHARED, _by_topic, is_hint=True)
        found: dict[TopicPartition, LastShared] = {}
        of_topics = self._of_topics(stored)
        known = {topic for each in stored for topic in each.content}
        self._warn_of([topic for topic in of_topics if topic in known and not of_topics[topic]], _SHARED)
        for topic, files in of_topics.items():
            for each in files:
                for partition, last in each.content[topic].items():
                    if partition not in found or last.offset < found[partition].offset:
                        found[partition] = last  # each is true, and the lowest is below where all readers are
        return found

    def store_shared(self, shared: Mapping[TopicPartition, LastShared]) -> None:
        """Store what the query and its logs share. It is not flushed, as it is often replaced."""
        content: dict[str, dict[str, LastShared]] = {}
        for (topic, number), last in sorted(shared.items()):
            content.setdefault(topic, {})[str(number)] = last
        self._write(_SHARED, self._name(), content, flush=False)

    def begins(self) -> Offsets:
        """The start offsets of the newest planned micro-batch, as :meth:`store_begins` stored them."""
        plan = self._log.newest_plan()
        parse = partial(parse_offsets, option="stored beginnings")
        stored = [each for each in self._read(_BEGINS, parse, is_hint=True) if each.plan == plan]
        if not self._is_only_source():
            stored = [each for each in stored if each.name in self._names()]
        return self._newest(stored, ()).content if stored else {}

    def store_begins(self, begins: Offsets) -> None:
        """Store the start offsets of the newest planned micro-batch, before any task reads it."""
        self._write(_BEGINS, self._name(), to_json(begins), self._log.newest_plan())

    def _warn_of(self, topics: list[str], kind: _Kind) -> None:
        """Say once of each topic that nothing tells whether it is the one that the query has read."""
        new = [topic for topic in topics if topic not in self._unknown]
        self._unknown.update(new)
        if new:
            _log.warning(
                "The %s of topics that the query has read are not stored beside its checkpoint (%s): whether"
                " %s were recreated since can't be told",
                kind.what,
                self._checkpoint.label(kind.folder),
                listed(new, 5),
            )

    def _of_topics(self, stored: list[_Stored]) -> dict[str, list[_Stored]]:
        """The file that counts for each topic that the query has read, as far as this reader may have;
        several files if they can't be told apart."""
        read, names = self._log.read_so_far(), self._names()
        found = {}
        for topic in sorted({topic for ends in read for topic in topics_of(ends)}):
            if not self._reader.selection.covers(topic):
                continue
            files = [each for each in stored if topic in each.content]
            if sum(topic in topics_of(ends) for ends in read) > 1:
                own = [each for each in files if each.name in names]
                files = own or [each for each in files if each.place in (None, self._place)]
                is_told = bool(own)
            else:
                is_told = bool(files)
            found[topic] = [self._newest(files, names)] if is_told else files
        return found

    @staticmethod
    def _newest(stored: list[_Stored], names: Collection[str]) -> _Stored:
        return max(stored, key=lambda each: (each.age, each.name in names))

    def _is_only_source(self) -> bool:
        return len(self._log.planned_ends()) == 1

    def _name(self, *starting: object) -> str:
        return _digest((self._place, self._reader.selection, self._reader.group, *starting)) + _SUFFIX

    def _names(self) -> tuple[str, str]:
        """The names of the reader's files, in this version and before."""
        return self._name(), _digest(self._reader.source) + _SUFFIX

    def _read(
        self, kind: _Kind, parse: Callable[[dict[str, Any]], Any], *, is_hint: bool = False
    ) -> list[_Stored]:
        """The query's files of a kind. Those of another query are removed if this one is new: if it has
        planned nothing so far.

        :param is_hint: whether to leave out what can't be used.
        :raises KafkaLogError: if one is corrupt, or belongs to another history of the checkpoint.
        """
        folder, found = self._checkpoint.child(kind.folder), []
        for name in _names_in(folder):
            data = folder.read_replaced(name)
            if data is None:
                continue
            try:
                query_id, stored = self._parsed(name, data, parse)
            except UNREADABLE as e:
                if is_hint:
                    continue
                raise self._error(kind, name, "are corrupt") from e
            if query_id == self._query_id and (stored.plan is None or self._log.goes_on_from(stored.plan)):
                if stored.content is not None:  # version 2 emptied a file of an earlier query
                    found.append(stored)
            elif is_hint:
                continue
            elif query_id == self._query_id:
                batch = stored.plan and stored.plan.batch
                raise self._error(
                    kind, name, f"are newer than Spark's log, which lacks micro-batch {batch} as it was"
                )
            elif self._log.newest_plan() is None:
                remove_file(folder, name)
            else:
                what = f"are of query {query_id}, the checkpoint is of query {self._query_id}"
                raise self._error(kind, name, what)
        self._turns.setdefault(kind, max((each.turn for each in found), default=0) + 1)
        return found

    def _parsed(self, name: str, data: bytes, parse: Callable[[dict[str, Any]], Any]) -> tuple[str, _Stored]:
        """The query of a file, and what it holds.

        Files of version 1 are the content alone, whose values are never whole numbers, and taken for the
        query's. Those of version 2 have neither place nor turn.
        """
        stored = json.loads(data)
        if not isinstance(stored.get("version"), int):
            return self._query_id, _Stored(name, None, 0, None, parse(stored))
        plan = None if stored.get("plan") is None else PlanDigest(*stored["plan"])
        content, query_id, turn = stored["content"], stored["query"], stored.get("turn", 0)
        if "before" in stored and plan and query_id == self._query_id and not self._log.is_past(plan.batch):
            content = stored["before"]
        if (
            not isinstance(query_id, str)
            or not isinstance(turn, int)
            or not (plan is None or isinstance(plan.batch, int))
        ):
            raise ValueError("expected a query, a turn and a plan")
        return query_id, _Stored(
            name, stored.get("place"), turn, plan, None if content is None else parse(content)
        )

    def _write(
        self,
        kind: _Kind,
        name: str,
        content: Mapping[str, object],
        plan: PlanDigest | None = None,
        before: Mapping[str, object] | None = None,
        *,
        flush: bool = True,
    ) -> None:
        """Replace a file atomically. If the query has one source of topics, it then is the only one.

        :param plan: the newest that Spark's log must have for the file to count.
        :param before: what counts until that plan, which runs now, is complete.
        """
        if kind not in self._turns:
            self._read(kind, lambda content: content, is_hint=True)
        stored = {
            "version": _VERSION,
            "query": self._query_id,
            "plan": plan,
            "place": self._place,
            "turn": self._turns[kind],
            "content": content,
        }
        if before is not None and plan is not None:
            stored["before"] = before
            self._log.flush(plan.batch)
        folder = self._checkpoint.child(kind.folder)
        folder.replace(name, json.dumps(stored, sort_keys=True).encode(), flush=flush)
        if kind not in self._tidied:
            self._tidied.add(kind)
            if self._is_only_source():
                for other in set(_names_in(folder)) - {name}:
                    remove_file(folder, other)

    def _ambiguous(self, kind: _Kind, topics: Iterable[str]) -> KafkaLogError:
        return KafkaLogError(
            f"Several sources of the query read {listed(sorted(topics), 5)}, and nothing tells which of the"
            f" stored {kind.what} are this one's",
            file=self._checkpoint.label(kind.folder),
            hint="Give place, topics, group and start of each reader as in the run before, or leave out"
            f" checkpointLocation for this reader. {kind.without}",
        )

    def _error(self, kind: _Kind, name: str, what: str) -> KafkaLogError:
        return KafkaLogError(
            f"The stored {kind.what} {what}",
            file=self._checkpoint.child(kind.folder).label(name),
            hint=f"Restore the whole checkpoint from one moment, or delete the file. {kind.without}",
        )


def _names_in(folder: Folder) -> set[str]:
    """The names of the files in a folder, as :meth:`.Folder.replace` wrote them."""
    try:
        names = {name.removesuffix(NEW_SUFFIX) for name in folder.names()}
    except FileNotFoundError:
        return set()
    return {name for name in names if name.endswith(_SUFFIX) and not name.startswith(".")}


def _digest(named: object) -> str:
    return hashlib.sha256(repr(named).encode()).hexdigest()[:32]


def _texts(content: dict[str, Any]) -> dict[str, str]:
    if not all(isinstance(value, str) for value in content.values()):
        raise ValueError("expected texts")
    return content


def _by_topic(content: dict[str, Any]) -> dict[str, dict[TopicPartition, LastShared]]:
    return {
        topic: {
            TopicPartition(topic, int(number)): _last_shared(*last) for number, last in partitions.items()
        }
        for topic, partitions in content.items()
    }


def _last_shared(topic_id: object, offset: object, epoch: object, batch: Any) -> LastShared:
    header = None if batch is None else BatchHeader(*batch)
    if not isinstance(topic_id, str) or not all(isinstance(n, int) for n in (offset, epoch, *(header or ()))):
        raise ValueError("expected a text and whole numbers")
    return LastShared(topic_id, offset, epoch, header)  # type: ignore[arg-type]


class StoredState:
    """All that readers have stored beside a checkpoint, for who changes its plans.

    :param checkpoint: the folder; the query does not run.
    :param unfinished: the micro-batch that was planned last, if it is not complete.
    """

    def __init__(self, checkpoint: Folder, unfinished: int | None = None) -> None:
        self._checkpoint = checkpoint
        self._unfinished = unfinished

    def topic_ids(self, place: str) -> dict[str, str]:
        """The id of each topic that was read, as far as one is stored; of several the one stored last.

        :param place: the one to ask about the topics: of topics that sources have read in several places,
            those count that were read there.
        """
        found: dict[str, str] = {}
        for _, stored in self._of_place(place):
            found |= stored["content"]
        return found

    def topics_in(self, place: str) -> set[str]:
        """The topics that readers of a place have read there."""
        here = _digest(place)
        return {
            topic
            for _, stored in self._files(_TOPIC_IDS)
            if stored.get("place") == here
            for topic in stored["content"]
        }

    def paths(self) -> list[str]:
        """The paths, in the checkpoint, of the files that a change of its plans may change."""
        return [
            f"{kind.folder}/{name}"
            for kind in (_STARTS, _TOPIC_IDS, _SHARED, _BEGINS)
            for name in sorted(_names_in(self._checkpoint.child(kind.folder)))
        ]

    def follow(self, digests: Mapping[int, str]) -> None:
        """Make the files count with the new plans of these micro-batches; what can't is removed."""
        for kind in _STARTS, _TOPIC_IDS:
            folder = self._checkpoint.child(kind.folder)
            for name, stored in self._files(kind):
                plan = stored.get("plan")
                if plan is not None and plan[0] in digests:
                    stored["plan"] = [plan[0], digests[plan[0]]]
                    stored.pop("before", None)
                    folder.replace(name, json.dumps(stored, sort_keys=True).encode(), flush=True)
        for kind in _SHARED, _BEGINS:
            folder = self._checkpoint.child(kind.folder)
            for name in _names_in(folder):
                remove_file(folder, name)

    def store_topic_ids(self, topic_ids: Mapping[str, str], names: Mapping[str, str], place: str) -> None:
        """Store the ids that topics have now.

        :param topic_ids: by the name that a topic has now; a topic without one is left out.
        :param names: the names that topics have now, by those that are stored.
        :param place: as in :meth:`topic_ids`.
        """
        folder = self._checkpoint.child(_TOPIC_IDS.folder)
        for name, stored in self._with_ids(topic_ids, names, place):
            folder.replace(name, json.dumps(stored, sort_keys=True).encode(), flush=True)

    def has_topic_ids(self, topic_ids: Mapping[str, str], names: Mapping[str, str], place: str) -> bool:
        """Whether :meth:`store_topic_ids` would change nothing."""
        return not any(self._with_ids(topic_ids, names, place))

    def _with_ids(
        self, topic_ids: Mapping[str, str], names: Mapping[str, str], place: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """The files that change, and their contents then."""
        counting = {name: {*stored["content"]} for name, stored in self._of_place(place)}
        for name, stored in self._files(_TOPIC_IDS):
            known = stored["content"]
            mine = names.keys() & counting[name]
            content = {old: known[old] for old in known.keys() - mine - {names[old] for old in mine}}
            for new in (names[old] for old in mine):
                if topic_ids.get(new):
                    content[new] = topic_ids[new]
            if content != known:
                yield name, {**stored, "content": content}

    def _of_place(self, place: str) -> list[tuple[str, dict[str, Any]]]:
        """The files with topic ids, the oldest first, each with the topics of which it counts for a place."""
        files = sorted(self._files(_TOPIC_IDS), key=lambda file: file[1].get("turn", 0))
        here = (None, _digest(place))
        own = {topic for _, stored in files if stored.get("place") in here for topic in stored["content"]}
        return [
            (
                name,
                {
                    **stored,
                    "content": {
                        topic: topic_id
                        for topic, topic_id in stored["content"].items()
                        if topic not in own or stored.get("place") in here
                    },
                },
            )
            for name, stored in files
        ]

    def _files(self, kind: _Kind) -> list[tuple[str, dict[str, Any]]]:
        """The names and contents of the files of a kind, but of those that other versions have written."""
        folder, found = self._checkpoint.child(kind.folder), []
        for name in sorted(_names_in(folder)):
            with suppress(*UNREADABLE):
                stored = json.loads(folder.read_replaced(name) or b"")
                if stored["version"] not in (2, _VERSION):
                    continue
                plan, content = stored.get("plan"), stored["content"]
                if "before" in stored and plan is not None and plan[0] == self._unfinished:
                    content = stored["before"]
                stored["content"] = _texts(content or {}) if kind is _TOPIC_IDS else content
                found.append((name, stored))
        return found


class TopicsRead:
    """The topics of the newest micro-batch that a query has planned.

    :param default_fs: as for :class:`.checkpoint.QueryLog`.
    :raises KafkaLogError: if it isn't the checkpoint of the query.
    """

    def __init__(self, checkpoint_location: str, default_fs: str | None, query_id: str) -> None:
        log = QueryLog(checkpoint_location, default_fs)
        log.check_query(query_id)
        self._state = StoredState(locate_as_hadoop(checkpoint_location, default_fs))
        self.names = {topic for ends in log.planned_ends() for topic in topics_of(ends)}
        """Their names, wherever they are."""

    def of_place(self, place: str) -> set[str]:
        """The topics of a place, as far as their readers have stored which place theirs is."""
        return self.names & self._state.topics_in(place)
