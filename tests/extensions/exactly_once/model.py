"""A model of Kafka's transactions for one transactional id, two partitions and one group: as unkind as Kafka.

What it keeps of Kafka (TransactionCoordinator, ProducerStateManager, GroupMetadataManager): an epoch that
InitProducerId and timeouts raise; EndTxn that can be repeated for the same epoch; a partition that refuses
older epochs and repeated sequence numbers, but not, as before KIP-890, rows that belong to no transaction:
the next marker decides about these. Requests may be lost before or after their effect, or come much later.
And a coordinator that was killed may complete a transaction without writing its markers, or some of them;
one that is late carries out what is decided while others ask.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark_kafkalog.broker.produce.ids import ProducerId
from pyspark_kafkalog.errors import FencedError, TransactionError
from pyspark_kafkalog.extensions.exactly_once.commit import Outcome, PendingOffsetError, UnknownResultError
from pyspark_kafkalog.extensions.exactly_once.intent import Intent, Producers, RowsOf, Settling
from pyspark_kafkalog.extensions.exactly_once.marker import (
    CommittedEpochs,
    Marker,
    OldMarkerError,
    check_newest,
)
from pyspark_kafkalog.extensions.exactly_once.requests import Described
from pyspark_kafkalog.extensions.exactly_once.settling import (
    ProducerSeen,
    Settlement,
    committed_as,
    decided,
    decided_by,
    is_unsettled,
    newest_epoch,
    settled_by,
)
from pyspark_kafkalog.model import TopicPartition
from tests.extensions.exactly_once.works import work_of

PARTITIONS = TopicPartition("t", 0), TopicPartition("t", 1)
REFUSED = "what a broker says to an old epoch, or to what does not fit its state"


class UnknownError(TransactionError):
    """No answer came, for longer than the client asks."""


class KilledError(Exception):
    """The driver is dead."""


@dataclass
class Open:
    """An open transaction."""

    epoch: int
    partitions: set[int] = field(default_factory=set)
    has_group: bool = False


@dataclass
class Partition:
    """What a leader keeps of the producer."""

    epoch: int = -1
    sequence: int = -1
    undecided: list[str] = field(default_factory=list)
    """Rows of an open transaction, with its epoch there."""
    open_epoch: int | None = None
    visible: list[str] = field(default_factory=list)

    def produce(self, epoch: int, sequence: int, rows: str) -> None:
        """Produce one record batch."""
        if epoch < self.epoch:
            raise FencedError(REFUSED)
        if epoch > self.epoch:
            self.epoch, self.sequence = epoch, -1
        if sequence <= self.sequence:
            return  # a duplicate
        if sequence != self.sequence + 1:
            raise FencedError(REFUSED)
        self.sequence = sequence
        self.undecided.append(rows)
        self.open_epoch = epoch

    def decide(self, epoch: int, *, commit: bool) -> None:
        """Write a marker."""
        if epoch > self.epoch:
            self.epoch, self.sequence = epoch, -1
        if commit:
            self.visible += self.undecided
        self.undecided.clear()
        self.open_epoch = None


@dataclass
class Kafka:
    """One transactional id, two partitions, and the marker's group."""

    epoch: int = -1
    open: Open | None = None
    outcome: Outcome = Outcome.NOT_KNOWN
    """Of the newest transaction, as DescribeTransactions tells; ``ended`` has its epoch and result."""
    ended: tuple[int, bool] | None = None
    committed: set[int] = field(default_factory=set)
    """Epochs that were committed; ``cut_short`` is whether some of what they had was aborted later."""
    cut_short: bool = False
    forgets: Callable[[], tuple[Sequence[int], bool]] = lambda: ((), False)
    """For which partitions markers are left out, and whether the group's is."""
    is_late: Callable[[], bool] = lambda: False
    """Whether the coordinator takes its time to carry out what is decided: see :meth:`go_on`."""
    undone: list[Callable[[], None]] = field(default_factory=list)
    """What is left to do of a transaction that is decided."""
    partitions: list[Partition] = field(default_factory=lambda: [Partition() for _ in PARTITIONS])
    pending: Marker | None = None
    marker: Marker | None = None
    before: Marker | None = None
    """The marker before that, which a deposed coordinator still has in memory."""

    def init(self, expected: int | None = None) -> int:
        """InitProducerId, once it is not asked to wait. It aborts what is open before it compares epochs."""
        self._abort_open()
        if expected is not None and self.undone:
            return self.epoch
        self.go_on()
        if expected is not None and expected != self.epoch - 1 and expected != self.epoch:
            raise FencedError(REFUSED)
        self.epoch += 1
        self.outcome = Outcome.NOT_KNOWN
        return self.epoch

    def abort_open(self) -> None:
        """InitProducerId without waiting."""
        if self.open is not None:
            self._abort_open()
        elif not self.undone:
            self.init()

    def expire(self) -> None:
        """The transaction was open for too long."""
        self._abort_open()

    def _abort_open(self) -> None:
        if self.open is not None:
            self.epoch += 1  # fences what is still under way
            self._decide(commit=False)

    def describe(self) -> Described:
        """DescribeTransactions."""
        return Described(self.outcome, 0, self.epoch)

    def open_epochs(self, numbers: Collection[int]) -> dict[TopicPartition, int]:
        """DescribeProducers."""
        return {
            PARTITIONS[number]: partition.open_epoch
            for number, partition in enumerate(self.partitions)
            if number in numbers and partition.open_epoch is not None
        }

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise FencedError(REFUSED)

    def add(self, epoch: int, *, partitions: Sequence[int] = (), group: bool = False) -> None:
        """AddPartitionsToTxn or AddOffsetsToTxn."""
        self._check(epoch)
        self.go_on()
        self.open = self.open or Open(epoch)
        self.outcome = Outcome.OPEN
        self.open.partitions.update(partitions)
        self.open.has_group |= group

    def mark(self, epoch: int, marker: Marker) -> None:
        """TxnOffsetCommit."""
        self._check(epoch)
        if self.open is None or not self.open.has_group:
            raise FencedError(REFUSED)
        self.pending = marker

    def end(self, epoch: int, *, commit: bool) -> None:
        """EndTxn."""
        self._check(epoch)
        self.go_on()
        if self.open is not None:
            self._decide(commit=commit)
        elif self.ended != (epoch, commit):
            raise FencedError(REFUSED)

    def _decide(self, *, commit: bool) -> None:
        assert self.open is not None
        ended, self.open = self.open, None
        forgets_rows, forgets_offsets = self.forgets()
        if commit:
            self.committed.add(ended.epoch)
        self.ended = (ended.epoch, commit)
        self.outcome = Outcome.ENDING
        written = sorted(ended.partitions.difference(forgets_rows))
        self.undone = [partial(self._decide_rows, self.partitions[n], self.epoch, commit) for n in written]
        if ended.has_group and not forgets_offsets:
            self.undone.append(partial(self._decide_marker, commit))
        over = Outcome.COMMITTED if commit else Outcome.ABORTED
        self.undone.append(partial(setattr, self, "outcome", over))
        if not self.is_late():
            self.go_on()

    def _decide_rows(self, partition: Partition, epoch: int, commit: bool) -> None:
        self.cut_short |= not commit and partition.open_epoch in self.committed
        partition.decide(epoch, commit=commit)

    def _decide_marker(self, commit: bool) -> None:
        if commit and self.pending is not None:
            self.before, self.marker = self.marker, self.pending
        elif self.pending is not None and self.pending.epoch in self.committed:
            self.cut_short = True
        self.pending = None

    def go_on(self, steps: int | None = None) -> None:
        """Carry out what is decided, or some ``steps`` of it; what else is asked waits for all."""
        done, self.undone = self.undone[:steps], [] if steps is None else self.undone[steps:]
        for do in done:
            do()


@dataclass
class World:
    """The cluster, the checkpoint, and requests that come late.

    ``fate`` says what happens to each request.
    """

    kafka: Kafka = field(default_factory=Kafka)
    intent: Intent | None = None
    skipped: RowsOf | None = None
    late: list[Callable[[], object]] = field(default_factory=list)
    fate: Callable[[str], str] = lambda request: "answered"
    spread: Callable[[], Sequence[int]] = lambda: (0,)
    """Which partitions get the rows of an attempt: it may be others than those of the one before."""
    tells: Callable[[], bool] = lambda: True
    """Whether partitions that get no rows have a leader that tells what they have seen."""
    deposed: Callable[[], bool] = lambda: False
    """Whether a look at the marker is answered by a coordinator that does not know what came last."""
    is_calm: bool = False

    def calm_down(self) -> None:
        """From now on all goes well."""
        self.fate, self.deposed, self.is_calm = (lambda request: "answered"), (lambda: False), True
        self.tells = lambda: True
        self.kafka.forgets, self.kafka.is_late = (lambda: ((), False)), (lambda: False)
        self.kafka.go_on()


class ModelSteps:
    """:class:`.commit.Steps` of one run of a batch, with three record batches, against the model."""

    rows = 3

    def __init__(self, world: World, batch: int) -> None:
        self.world = world
        self.batch = batch
        self.partitions = world.spread()
        others = {0, 1}.difference(self.partitions)
        self.tells = {*self.partitions, *(number for number in others if world.tells())}
        self.epoch = -1
        self.dead = False
        self.work = work_of(batch)
        self.known = world.intent
        self.seen: Marker | None = None
        self.decided: Settlement | None = None
        self.patience = 9

    def ask(self, name: str, request: Callable[[], object], attempts: int = 2) -> object:
        """Ask the cluster, and once more if no answer comes, as :class:`.requests.Requests` does."""
        for attempt in range(1, attempts + 1):
            if self.dead:
                raise KilledError
            fate = self.world.fate(name)
            if fate == "killed before":
                self.dead = True
                continue
            if fate in ("lost", "late"):
                if fate == "late":
                    self.world.late.append(request)
                if attempt == attempts:
                    raise UnknownError("no answer")
                continue
            result = request()
            if fate == "killed after":
                self.dead = True
                continue
            if fate == "answer lost":
                if attempt == attempts:
                    raise UnknownError("no answer")
                continue
            return result
        raise KilledError

    def is_pending(self) -> bool:
        self.newest: Described | None = None
        if self.is_marker_pending() or self.settling:
            return True
        found: list[Described] = []
        self.ask("describe", lambda: found.append(self.world.kafka.describe()))
        self.newest = found[-1]
        if self.newest.outcome is Outcome.ENDING:
            return True
        is_open = self.newest.outcome is Outcome.OPEN
        return is_open and committed_as(self.newest, self.glimpse[0], self.carried_out) is not None

    def is_marker_pending(self) -> bool:
        found: list[tuple[Marker | None, Marker | None]] = []
        self.ask("look", lambda: found.append((self.world.kafka.marker, self.world.kafka.pending)))
        self.glimpse = found[-1]
        return self.glimpse[1] is not None

    @property
    def settling(self) -> tuple[Settling, ...]:
        return () if self.world.intent is None else self.world.intent.settling

    @property
    def carried_out(self) -> tuple[Settling, ...]:
        return () if self.world.intent is None else self.world.intent.carried_out

    def outcome(self) -> Outcome:
        found: list[Described] = []
        self.ask("describe", lambda: found.append(self.world.kafka.describe()))
        known, is_pending = self.settling, self.is_marker_pending()
        looks: list[Marker | None] = []
        self.ask("look", lambda: looks.append(self.world.kafka.marker))
        settling = self.unsettled(known, found[-1].epoch, looks[-1], is_pending=is_pending)
        last, over = looks[-1], self.carried_out
        self.decided = decided(found[-1], settling, last, carried_out=over, required=True, cluster_id=None)
        return self.decided.outcome

    def unsettled(
        self, known: Sequence[Settling], epoch: int, last: Marker | None = None, *, is_pending: bool = True
    ) -> list[Settling]:
        newest = ProducerId(0, epoch, None)
        left = [each for each in known if is_unsettled(each, newest, last, is_pending=is_pending)]
        if over := [each for each in known if each not in left]:
            self.note(over=over)
        return left

    def new_intent(self) -> Intent:
        return self.work.new_intent(self.known, "t", None)

    def note(self, **changes: Any) -> None:
        intent = self.world.intent or self.new_intent()
        self.world.intent = intent.with_settling(**changes)

    def check_newest(self) -> None:
        if self.newest is None:
            return
        is_committed = self.newest.outcome is Outcome.COMMITTED
        committed = RowsOf(0, self.newest.epoch) if is_committed else None
        try:
            self.check_glimpse(committed)
        except OldMarkerError:
            if self.is_marker_pending():
                raise
            self.check_glimpse(committed)

    def check_glimpse(self, committed: RowsOf | None) -> None:
        (marker, pending), intent = self.glimpse, self.world.intent
        if pending is None and intent is not None:
            check_newest(marker, intent, committed, Producers((0,), self.world.skipped))
            if marker is not None and marker.batch_id == self.batch:
                self.world.skipped = RowsOf(0, marker.epoch)

    def abort_open(self) -> None:
        with suppress(UnknownError):
            self.ask("init", self.world.kafka.abort_open, attempts=1)

    def carry_out(self, outcome: Outcome) -> None:
        known, kafka, found = self.decided, self.world.kafka, []
        assert known is not None
        epoch, is_commit = known.producer.epoch, outcome is Outcome.COMMITTED
        self.ask("open", lambda: found.append(kafka.open_epochs(self.tells)))
        if is_commit:
            self.note(new=known.settling._replace(started=False))
        self.ask("add", lambda: kafka.add(epoch, group=True))
        if self.epoch == epoch and not is_commit:
            self.mark()
        if chosen := [number for number, each in enumerate(PARTITIONS) if found[-1].get(each) in known.of]:
            if is_commit:
                self.note(new=known.settling)
            self.ask("add", lambda: kafka.add(epoch, partitions=chosen))
        self.ask("end", lambda: kafka.end(epoch, commit=is_commit))
        if is_commit:
            self.note(over=settled_by(self.settling, known.producer), carried_out=known.settling)

    def open_outcome(self, marker: Marker | None) -> Outcome | None:
        found: list[dict[TopicPartition, int]] = []
        self.ask("open", lambda: found.append(self.world.kafka.open_epochs(self.tells)))
        if not found[-1]:
            return None
        needed = [PARTITIONS[number] for number in self.partitions]
        current = ProducerId(0, self.epoch, None)
        self.decided = decided_by(marker, found[-1], current, needed, required=True)
        return None if self.decided is None else self.decided.outcome

    def outrun(self, marker: Marker | None) -> bool:
        kafka, found = self.world.kafka, [{}]
        self.ask("open", lambda: found.append({n: kafka.partitions[n].epoch for n in self.tells}))
        seen = {PARTITIONS[number]: [ProducerSeen(0, epoch, -1)] for number, epoch in found[-1].items()}
        newest = newest_epoch(marker, seen, 0)
        if self.epoch > newest:
            return False
        now = self.epoch
        while now <= newest:
            expected, now = now + 1, int(str(self.ask("init", kafka.init)))
            if now != expected:
                raise FencedError(REFUSED)
        return True

    def wait(self) -> None:
        self.patience -= 1
        if self.patience == 0:
            raise PendingOffsetError("pending")

    def calm_down(self, error: Exception) -> None:
        """All comes later here anyway."""

    def fence(self) -> None:
        self.epoch = int(str(self.ask("init", self.world.kafka.init)))
        self.unsettled(self.settling, self.epoch)

    def read_marker(self) -> Marker | None:
        found: list[tuple[Marker | None, Marker | None]] = []
        self.ask("look", lambda: found.append((self.world.kafka.marker, self.world.kafka.pending)))
        if found[-1][1] is not None:
            raise PendingOffsetError("pending")
        self.seen = self.world.kafka.before if self.world.deposed() else found[-1][0]
        self.unsettled(self.settling, self.epoch, self.seen, is_pending=False)
        return self.seen

    def is_committed(self, marker: Marker | None) -> bool:
        self.world.intent = self.world.intent or self.new_intent()
        if not self.work.is_committed(marker, self.known, None):
            return False
        assert marker is not None
        self.world.skipped = RowsOf(0, marker.epoch)
        return True

    @property
    def marker(self) -> Marker:
        first = CommittedEpochs.alone(self.epoch, since=0)
        epochs = first if self.seen is None else self.seen.epochs_with(0, self.epoch)
        return Marker("query", None, self.batch, "", self.rows, 0, self.epoch, epochs, ())

    def begin(self) -> None:
        kafka, epoch = self.world.kafka, self.epoch  # what comes late has the epoch of its run
        self.ask("add", lambda: kafka.add(epoch, partitions=self.partitions))
        self.ask("add", lambda: kafka.add(epoch, group=True))

    def produce(self) -> None:
        for number in range(self.rows):
            self._produce(number)

    def _produce(self, number: int) -> None:
        partition, sequence = self.place_of(number)
        rows, epoch = f"{self.batch}.{number}", self.epoch
        self.ask("produce", lambda: partition.produce(epoch, sequence, rows))

    def place_of(self, number: int) -> tuple[Partition, int]:
        """The partition of a record batch, and its sequence number there."""
        count = len(self.partitions)
        return self.world.kafka.partitions[self.partitions[number % count]], number // count

    def mark(self) -> None:
        epoch, marker = self.epoch, self.marker
        self.ask("mark", lambda: self.world.kafka.mark(epoch, marker))
        found: list[Marker | None] = []
        self.ask("look", lambda: found.append(self.world.kafka.marker))
        if found[-1] != self.seen:
            raise TransactionError("an old marker was read")

    def end(self) -> None:
        epoch = self.epoch
        try:
            self.ask("end", lambda: self.world.kafka.end(epoch, commit=True))
        except (FencedError, UnknownError) as e:
            raise UnknownResultError("no answer") from e

    def give_up(self) -> None:
        kafka, epoch = self.world.kafka, self.epoch
        with suppress(FencedError, UnknownError, KilledError):
            self.ask("add", lambda: kafka.add(epoch, group=True))
            self.ask("init", lambda: kafka.init(epoch))

    def confirm(self) -> None:
        """What follows the protocol."""
        self.world.intent = replace(self.world.intent or self.new_intent(), confirmed=True)
