"""A model of Kafka's transactions for one transactional id, one partition and one group: as unkind as Kafka.

What it keeps of Kafka (TransactionCoordinator, ProducerStateManager, GroupMetadataManager): an epoch that
InitProducerId and timeouts raise; EndTxn that can be repeated for the same epoch; a partition that refuses
older epochs and repeated sequence numbers, but not, as before KIP-890, rows that belong to no transaction:
the next marker decides about these. Requests may be lost before or after their effect, or come much later.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark_kafkalog.broker.transactions.marker import Expectation, Intent, Marker


class FencedError(Exception):
    """The broker refuses an old epoch, or what does not fit its state."""


class UnknownError(Exception):
    """No answer came, for longer than the client asks."""


class KilledError(Exception):
    """The driver is dead."""


@dataclass
class Open:
    """An open transaction."""

    epoch: int
    has_partition: bool = False
    has_group: bool = False


@dataclass
class Kafka:
    """One transactional id, one partition, and the marker's group."""

    epoch: int = -1
    open: Open | None = None
    ended: tuple[int, bool] | None = None
    """Epoch and result of the last transaction, for a repeated EndTxn."""
    partition_epoch: int = -1
    sequence: int = -1
    undecided: list[str] = field(default_factory=list)
    visible: list[str] = field(default_factory=list)
    pending: Marker | None = None
    marker: Marker | None = None
    before: Marker | None = None
    """The marker before that, which a deposed coordinator still has in memory."""

    def init(self, expected: int | None = None) -> int:
        """InitProducerId. Like Kafka it aborts what is open before it compares epochs."""
        self._abort_open()
        if expected is not None and expected != self.epoch - 1 and expected != self.epoch:
            raise FencedError
        self.epoch += 1
        return self.epoch

    def expire(self) -> None:
        """The transaction was open for too long."""
        self._abort_open()

    def _abort_open(self) -> None:
        if self.open is not None:
            self.epoch += 1  # fences what is still under way
            self._decide(commit=False)

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise FencedError

    def add(self, epoch: int, *, partition: bool = False, group: bool = False) -> None:
        """AddPartitionsToTxn or AddOffsetsToTxn."""
        self._check(epoch)
        self.open = self.open or Open(epoch)
        self.open.has_partition |= partition
        self.open.has_group |= group

    def produce(self, epoch: int, sequence: int, rows: str) -> None:
        """Produce one record batch."""
        if epoch < self.partition_epoch:
            raise FencedError
        if epoch > self.partition_epoch:
            self.partition_epoch, self.sequence = epoch, -1
        if sequence <= self.sequence:
            return  # a duplicate
        if sequence != self.sequence + 1:
            raise FencedError
        self.sequence = sequence
        self.undecided.append(rows)

    def mark(self, epoch: int, marker: Marker) -> None:
        """TxnOffsetCommit."""
        self._check(epoch)
        if self.open is None or not self.open.has_group:
            raise FencedError
        self.pending = marker

    def end(self, epoch: int, *, commit: bool) -> None:
        """EndTxn."""
        self._check(epoch)
        if self.open is not None:
            self._decide(commit=commit)
        elif self.ended != (epoch, commit):
            raise FencedError

    def _decide(self, *, commit: bool) -> None:
        assert self.open is not None
        if self.open.has_partition:
            if self.epoch > self.partition_epoch:
                self.partition_epoch, self.sequence = self.epoch, -1
            if commit:
                self.visible += self.undecided
            self.undecided.clear()
        if self.open.has_group:
            if commit and self.pending is not None:
                self.before, self.marker = self.marker, self.pending
            self.pending = None
        self.ended = (self.open.epoch, commit)
        self.open = None


@dataclass
class World:
    """The cluster, the checkpoint, and requests that come late.

    ``fate`` says what happens to each request.
    """

    kafka: Kafka = field(default_factory=Kafka)
    intent: Intent | None = None
    late: list[Callable[[], object]] = field(default_factory=list)
    fate: Callable[[str], str] = lambda request: "answered"
    deposed: Callable[[], bool] = lambda: False
    """Whether a look at the marker is answered by a coordinator that does not know what came last."""
    required: bool = True


class ModelSteps:
    """:class:`.commit.Steps` of one run of a batch, with three record batches, against the model."""

    rows = 3

    def __init__(self, world: World, batch: int) -> None:
        self.world = world
        self.batch = batch
        self.epoch = -1
        self.dead = False
        self.expectation = Expectation("query", None, batch, "", world.intent, required=world.required)
        self.seen: Marker | None = None

    def ask(self, name: str, request: Callable[[], object]) -> object:
        """Ask the cluster, and once more if no answer comes, as :class:`.requests.Requests` does."""
        for attempt in range(2):
            if self.dead:
                raise KilledError
            fate = self.world.fate(name)
            if fate == "killed before":
                self.dead = True
                continue
            if fate in ("lost", "late"):
                if fate == "late":
                    self.world.late.append(request)
                if attempt:
                    raise UnknownError
                continue
            result = request()
            if fate == "killed after":
                self.dead = True
                continue
            if fate == "answer lost":
                if attempt:
                    raise UnknownError
                continue
            return result
        raise KilledError

    def fence(self) -> None:
        self.epoch = int(str(self.ask("init", self.world.kafka.init)))

    def read_marker(self) -> Marker | None:
        found: list[Marker | None] = []
        self.ask("look", lambda: found.append(self.world.kafka.marker))
        self.seen = self.world.kafka.before if self.world.deposed() else found[-1]
        return self.seen

    def clear_marker(self) -> None:
        raise AssertionError("nothing else commits the marker here")

    def is_committed(self, marker: Marker | None) -> bool:
        if self.expectation.is_met_by(marker):
            return True
        self.world.intent = self.world.intent or self.expectation.new_intent("t")
        return False

    def begin(self) -> None:
        kafka = self.world.kafka
        self.ask("add", lambda: kafka.add(self.epoch, partition=True))
        self.ask("add", lambda: kafka.add(self.epoch, group=True))

    def produce(self) -> None:
        for sequence in range(self.rows):
            self._produce(sequence)

    def _produce(self, sequence: int) -> None:
        kafka, rows = self.world.kafka, f"{self.batch}.{sequence}"
        self.ask("produce", lambda: kafka.produce(self.epoch, sequence, rows))

    def mark(self) -> None:
        marker = Marker("query", None, self.batch, "", self.rows)
        self.ask("mark", lambda: self.world.kafka.mark(self.epoch, marker))
        found: list[Marker | None] = []
        self.ask("look", lambda: found.append(self.world.kafka.marker))
        if found[-1] != self.seen:
            raise FencedError

    def end(self) -> None:
        self.ask("end", lambda: self.world.kafka.end(self.epoch, commit=True))

    def give_up(self) -> None:
        kafka = self.world.kafka
        with suppress(FencedError, UnknownError, KilledError):
            self.ask("add", lambda: kafka.add(self.epoch, group=True))
            self.ask("init", lambda: kafka.init(self.epoch))

    def confirm(self) -> None:
        """What follows the protocol."""
        self.world.intent = self.expectation.new_intent("t", confirmed=True)
