"""The order of steps against a model of Kafka: once, whatever is lost, late or killed; broken orders fail.

The broken orders and steps are below. Those of the package itself are seeded by ``ci/mutants``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from pyspark_kafkalog.errors import FencedError, TransactionError
from pyspark_kafkalog.extensions.exactly_once.commit import (
    EndedTransactionError,
    Outcome,
    PendingOffsetError,
    UnknownResultError,
    commit_once,
)
from pyspark_kafkalog.extensions.exactly_once.intent import Settling
from pyspark_kafkalog.extensions.exactly_once.marker import Marker, OldMarkerError
from pyspark_kafkalog.extensions.exactly_once.settling import CutShortError
from tests.extensions.exactly_once.model import Kafka, KilledError, ModelSteps, UnknownError, World

FAULTS = ["lost", "answer lost", "late", "killed before", "killed after"]
FAULTS += ["another driver", "timeout", "deliver"]
WORLDS = tuple(
    st.sampled_from(["answered"] * calm + faults)
    for calm, faults in ((8, FAULTS), (24, FAULTS), (4, ["late", "deliver"]))
)
"""Some orders break where much goes wrong at once, others where nearly all goes well, or only comes late."""
Commit = Callable[[ModelSteps], bool]


SPREADS = st.sampled_from([(0,), (1,), (0, 1)])
FORGOTTEN = st.sampled_from([((0, 1), True), ((0, 1), False), ((0,), False), ((1,), True), ((), True)])
"""For the markers of partitions, and for the group's."""


class BrokenError(AssertionError):
    """The guarantee does not hold."""


def run(data: st.DataObject, commit: Commit, make: type[ModelSteps] = ModelSteps, batches: int = 3) -> None:
    """Run micro-batches as Spark does, each until it succeeds, in a world where anything may happen."""
    world = World()
    fates = data.draw(st.sampled_from(WORLDS), label="world")
    depth = 0

    def fate(name: str) -> str:
        nonlocal depth
        if left := len(world.kafka.undone):
            world.kafka.go_on(data.draw(st.integers(0, left), label="goes on"))
        drawn = data.draw(fates, label=name)
        if drawn == "timeout":
            world.kafka.expire()
        elif drawn == "deliver":
            deliver(world)
        elif drawn == "another driver" and depth == 0:
            depth += 1
            attempt(batch)
            depth -= 1
        else:
            return drawn
        return "answered"

    def deposed() -> bool:
        return make is not LooksOnce and bool(
            data.draw(st.sampled_from([False] * 9 + [True]), label="deposed")
        )

    def forgets() -> tuple[Sequence[int], bool]:
        if not data.draw(st.sampled_from([False] * 9 + [True]), label="killed after EndTxn"):
            return (), False
        world.late.clear()  # the broker goes down with its connections
        forgotten: tuple[Sequence[int], bool] = data.draw(FORGOTTEN, label="forgets")
        return forgotten

    def is_late() -> bool:
        return bool(data.draw(st.sampled_from([False] * 4 + [True]), label="late"))

    def spread() -> Sequence[int]:
        chosen: Sequence[int] = data.draw(SPREADS, label="spread")
        return chosen

    def tells() -> bool:
        return bool(data.draw(st.booleans(), label="tells"))

    def attempt(batch: int) -> bool:
        steps = make(world, batch)
        try:
            commit(steps)
        except CutShortError:
            nonlocal is_cut_short
            is_cut_short = True
            return False
        except PendingOffsetError:
            nonlocal refused
            refused = world.is_calm
            return False
        except (FencedError, KilledError, TransactionError) as e:
            if world.is_calm and tries > 5:
                raise BrokenError("the query never comes through") from e
            return False
        steps.confirm()
        return True

    refused = is_cut_short = False
    for batch in range(batches):
        world.fate, world.deposed, world.kafka.forgets = fate, deposed, forgets
        world.kafka.is_late = is_late
        world.spread, world.tells, world.is_calm = spread, tells, False
        tries = 0
        while not attempt(batch):
            tries += 1
            if is_cut_short:  # the coordinator has aborted what was committed, and the query says so
                return check_cut_short(world)
            if tries == 3:
                world.calm_down()
            if refused:  # it can't be known: the query fails, as it should
                with suppress(BrokenError):
                    return check(world, batch)
                return check(world, batch - 1)
        check(world, batch)
    world.calm_down()
    deliver(world)
    attempt(batches - 1)
    world.spread = lambda: (0, 1)
    attempt(batches)
    if is_cut_short:
        return check_cut_short(world)
    check(world, batches)
    if any(partition.undecided for partition in world.kafka.partitions):
        raise BrokenError("rows of no transaction, which block readers")
    return None


def deliver(world: World) -> None:
    """What was late arrives now."""
    late, world.late = world.late, []
    for request in late:
        with suppress(FencedError):
            request()


def check_cut_short(world: World) -> None:
    """What was committed was aborted, or a driver was killed when that had begun to be possible."""
    assert world.intent is not None
    if not world.kafka.cut_short and not any(each.started for each in world.intent.settling):
        raise BrokenError("refused, though nothing was aborted")


def check(world: World, newest: int) -> None:
    """All batches up to the newest are there once, in order, or open where a coordinator forgot a marker."""
    expected = [f"{batch}.{n}" for batch in range(newest + 1) for n in range(ModelSteps.rows)]
    visible = [row for partition in world.kafka.partitions for row in partition.visible]
    undecided = [row for partition in world.kafka.partitions for row in partition.undecided]
    missing = sorted({*expected} - {*visible})
    is_ordered = all(partition.visible == sorted(partition.visible) for partition in world.kafka.partitions)
    if sorted([*visible, *missing]) != expected or not {*missing} <= {*undecided} or not is_ordered:
        raise BrokenError(f"expected {expected}, got {visible}, and {undecided} open")


@pytest.mark.long
@settings(suppress_health_check=list(HealthCheck), max_examples=500)
@given(st.data())
def test_every_batch_is_shown_once(data: st.DataObject) -> None:
    run(data, commit_once)


# The faults that must not survive. Each is a wrong order, or a wrong step.


def looks_before_it_fences(steps: ModelSteps) -> bool:
    marker = steps.read_marker()
    steps.fence()
    if steps.is_committed(marker):
        return False
    return rest(steps)


def rest(steps: ModelSteps) -> bool:
    try:
        steps.begin()
        steps.produce()
        steps.mark()
    except Exception:
        steps.give_up()
        raise
    steps.end()
    return True


class FencesOnce(ModelSteps):
    """One epoch for all batches, as long as no error shows that it is over."""

    epochs: ClassVar[dict[int, int]] = {}

    def fence(self) -> None:
        known = self.epochs.get(id(self.world))
        if known is not None and known == self.world.kafka.epoch and self.world.kafka.open is None:
            self.epoch = known
        else:
            super().fence()
        self.epochs[id(self.world)] = self.epoch


class AbortsByEndTxn(ModelSteps):
    """Gives up with the same epoch, so that what is still under way is let in."""

    def give_up(self) -> None:
        with suppress(FencedError, UnknownError, KilledError):
            self.ask("end", lambda: self.world.kafka.end(self.epoch, commit=False))


class MarksOutsideOfTheTransaction(ModelSteps):
    """An ordinary commit of the marker's group."""

    def mark(self) -> None:
        self.world.kafka.marker = self.marker


class TrustsTheFirstLook(ModelSteps):
    """A deposed coordinator's answer is believed."""

    def mark(self) -> None:
        self.ask("mark", lambda: self.world.kafka.mark(self.epoch, self.marker))


class LooksOnce(TrustsTheFirstLook):
    """For an order whose fault a second look would find, too: no coordinator is deposed."""


class AbortsWhatIsPending(ModelSteps):
    """A commit of the marker that stays pending is taken for one that was left open."""

    def is_pending(self) -> bool:
        super().is_pending()
        return False

    def read_marker(self) -> Marker | None:
        if self.world.kafka.pending is not None:
            self.ask("add", lambda: self.world.kafka.add(self.epoch, group=True))
            self.ask("end", lambda: self.world.kafka.end(self.epoch, commit=False))
            self.fence()
        return super().read_marker()


class BeginsBesideOpenRows(ModelSteps):
    """It does not check whether rows of an earlier batch are still open."""

    def open_outcome(self, marker: Marker | None) -> Outcome | None:
        return None


class AbortsWhatIsBeingSettled(ModelSteps):
    """That a committed transaction is being settled is noted nowhere."""

    def note(self, **changes: Any) -> None:
        pass


class CountsOnAtARetry(ModelSteps):
    """A record batch without an answer is sent again with a new sequence number."""

    def produce(self) -> None:
        sequences = dict.fromkeys(self.partitions, 0)
        for number in range(self.rows):
            rows, place = f"{self.batch}.{number}", self.partitions[number % len(self.partitions)]
            for _ in range(2):
                fate = self.world.fate("produce")
                if fate.startswith("killed"):
                    self.dead = True
                    raise KilledError
                if fate not in ("lost", "late"):
                    self.world.kafka.partitions[place].produce(self.epoch, sequences[place], rows)
                    sequences[place] += 1
                if fate == "answered":
                    break


@pytest.mark.parametrize(
    ("commit", "make"),
    [
        pytest.param(looks_before_it_fences, LooksOnce, marks=pytest.mark.soak),
        pytest.param(commit_once, FencesOnce, marks=pytest.mark.soak),
        pytest.param(commit_once, AbortsByEndTxn, marks=pytest.mark.soak),
        (commit_once, MarksOutsideOfTheTransaction),
        pytest.param(commit_once, TrustsTheFirstLook, marks=pytest.mark.soak),
        (commit_once, CountsOnAtARetry),
        (commit_once, AbortsWhatIsPending),
        pytest.param(commit_once, BeginsBesideOpenRows, marks=pytest.mark.soak),
        pytest.param(commit_once, AbortsWhatIsBeingSettled, marks=pytest.mark.soak),
    ],
    ids=lambda broken: broken.__name__,
)
def test_a_broken_protocol_is_found_out(commit: Commit, make: type[ModelSteps]) -> None:
    @settings(
        suppress_health_check=list(HealthCheck),
        max_examples=20_000,
        phases=[Phase.generate],
        database=None,
        report_multiple_bugs=False,
    )
    @given(st.data())
    def search(data: st.DataObject) -> None:
        run(data, commit, make)

    with pytest.raises(BrokenError):
        search()


class Noted:
    """Steps that only note their names; some fail, each once, and outcomes are told in their order."""

    def __init__(
        self,
        *errors: tuple[str, Exception],
        pending: Sequence[Outcome] = (),
        opened: Sequence[Outcome] = (),
        behind: int = 0,
        patience: int = 9,
    ) -> None:
        self.done: list[str] = []
        self.errors = dict(errors)
        self.pending, self.rows, self.patience = [*pending], [*opened], patience
        self.behind = behind

    def _do(self, step: str) -> None:
        self.done.append(step)
        if error := self.errors.pop(step, None):
            raise error

    def is_pending(self) -> bool:
        return bool(self.pending)

    def outcome(self) -> Outcome:
        return self.pending.pop(0)

    def abort_open(self) -> None:
        self._do("abort open")

    def carry_out(self, outcome: Outcome) -> None:
        self._do(f"carry out {outcome.name}")

    def open_outcome(self, marker: Marker | None) -> Outcome | None:
        return self.rows.pop(0) if self.rows else None

    def wait(self) -> None:
        self.patience -= 1
        if self.patience < 0:
            raise PendingOffsetError("pending")

    def calm_down(self, error: Exception) -> None:
        self._do("calm down")

    def check_newest(self) -> None:
        """Nothing has gone back."""

    def fence(self) -> None:
        self._do("fence")

    def read_marker(self) -> Marker | None:
        self._do("read")
        return None

    def is_committed(self, marker: Marker | None) -> bool:
        return False

    def outrun(self, marker: Marker | None) -> bool:
        self.behind -= 1
        return self.behind >= 0

    def begin(self) -> None:
        self._do("begin")

    def produce(self) -> None:
        self._do("produce")

    def mark(self) -> None:
        self._do("mark")

    def end(self) -> None:
        self._do("end")

    def give_up(self) -> None:
        self._do("give up")


STEPS = ["fence", "read", "begin", "produce", "mark", "end"]


def test_the_order_of_steps() -> None:
    steps = Noted()
    assert commit_once(steps)
    assert steps.done == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails(step: str) -> None:
    """Only what has begun is given up, and nothing that may have been committed."""
    steps = Noted((step, UnknownError("no answer")))
    with pytest.raises(UnknownError):
        commit_once(steps)
    assert steps.done == _until(step)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "error",
    [FencedError("late"), EndedTransactionError("ended"), UnknownResultError("?"), OldMarkerError("old")],
    ids=repr,
)
def test_what_a_late_or_lost_request_breaks_is_run_again_once(step: str, error: Exception) -> None:
    steps = Noted((step, error))
    assert commit_once(steps)
    assert steps.done == [*_until(step), "calm down", *STEPS]


def test_a_second_fence_is_another_driver() -> None:
    steps = Noted(("begin", FencedError("first")), ("calm down", FencedError("second")))
    with pytest.raises(FencedError, match="second"):
        commit_once(steps)


def _until(step: str) -> list[str]:
    given_up = ["give up"] if step in ("begin", "produce", "mark") else []
    return [*STEPS[: STEPS.index(step) + 1], *given_up]


def test_what_was_decided_is_carried_out_before_the_fence() -> None:
    outcomes = [Outcome.OPEN, Outcome.ENDING, Outcome.COMMITTED, Outcome.NOT_KNOWN, Outcome.ABORTED]
    outcomes += [Outcome.ENDING, Outcome.COMMITTED]  # after the last one nothing is pending
    steps = Noted(pending=outcomes)
    assert commit_once(steps)
    assert steps.done == ["abort open", "carry out COMMITTED", "carry out ABORTED", *STEPS]


def test_what_nobody_knows_is_not_decided() -> None:
    steps = Noted(pending=[Outcome.NOT_KNOWN] * 9, patience=3)
    with pytest.raises(PendingOffsetError):
        commit_once(steps)
    assert steps.done == []


def test_older_brokers_are_asked_by_the_fence() -> None:
    steps = Noted(pending=[Outcome.NOT_TOLD, Outcome.COMMITTED])
    assert commit_once(steps)
    assert steps.done == STEPS


def test_a_batch_begins_once_no_rows_of_an_earlier_one_are_open() -> None:
    steps = Noted(opened=[Outcome.COMMITTED, Outcome.ABORTED])
    assert commit_once(steps)
    looks = ["fence", "read"]
    assert steps.done == [*looks, "carry out COMMITTED", *looks, "carry out ABORTED", *STEPS]


def complete(world: World, batch: int) -> None:
    """Run a batch, of which its driver notes that it is committed."""
    steps = ModelSteps(world, batch)
    assert commit_once(steps)
    steps.confirm()


def test_a_marker_that_went_back_by_the_batch_that_is_replayed() -> None:
    """Before a fence the coordinator tells that a later transaction was committed; so nothing is fenced."""
    world = World()
    for batch in range(2):
        complete(world, batch)
    world.kafka.marker = world.kafka.before
    for _ in range(2):
        with pytest.raises(OldMarkerError, match=r"committed a later batch .*failOnMissingMarker=false"):
            commit_once(ModelSteps(world, 1))
    check(world, 1)


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_marker_that_went_back_behind_a_fence(is_killed: bool) -> None:
    """A run has found the batch there, and skipped it: its fence has made the coordinator forget it."""
    world = World()
    for batch in range(2):
        complete(world, batch)
    if is_killed:
        world.fate = lambda name: "killed after" if name == "init" else "answered"
        with pytest.raises(KilledError):
            commit_once(ModelSteps(world, 1))
        world.calm_down()
    else:
        assert not commit_once(ModelSteps(world, 1))
    world.kafka.marker = world.kafka.before
    for _ in range(2):
        with pytest.raises(OldMarkerError, match="committed a later batch"):
            commit_once(ModelSteps(world, 1))
    check(world, 1)


def test_a_marker_that_went_back_to_where_another_was_pending() -> None:
    """That one is not of the transaction that was committed last, though it is taken for it."""
    world = World()
    for batch in range(3):
        complete(world, batch)
        if not batch:
            world.fate = lambda name: "killed before" if name == "end" else "answered"
            with pytest.raises(KilledError):
                commit_once(ModelSteps(world, 1))
            world.calm_down()
            marker, pending = world.kafka.marker, world.kafka.pending
    world.kafka.marker, world.kafka.pending = marker, pending
    for _ in range(2):
        with pytest.raises(OldMarkerError, match="committed a later batch"):
            commit_once(ModelSteps(world, 2))
    check(world, 2)


@pytest.mark.parametrize("pause", range(5))
@pytest.mark.parametrize("was_pending", [True, False])
@pytest.mark.parametrize("was_decided", [True, False])
def test_a_marker_that_went_back_under_a_late_coordinator(
    pause: int, was_pending: bool, was_decided: bool
) -> None:
    """It does one step of what is decided after so many requests: each may see more than the one before.

    What was decided when the marker went back is carried out on the older copy.
    """
    world, asked = World(), 0
    kafka = world.kafka

    def fate(name: str) -> str:
        nonlocal asked
        asked += 1
        if asked % (pause + 1) == 0:
            kafka.go_on(1)
        return "answered"

    complete(world, 0)
    marker, pending = kafka.marker, None
    if was_pending:
        world.fate = lambda name: "killed before" if name == "end" else "answered"
        with pytest.raises(KilledError):
            commit_once(ModelSteps(world, 1))
        world.calm_down()
        marker, pending = kafka.marker, kafka.pending
    complete(world, 1)
    kafka.is_late = lambda: was_decided
    world.fate = lambda name: "killed after" if name == "end" else "answered"
    with pytest.raises(KilledError):
        commit_once(ModelSteps(world, 2))
    kafka.is_late, world.fate = (lambda: True), fate
    kafka.marker, kafka.pending = marker, pending
    for _ in range(2):
        with pytest.raises(OldMarkerError, match="committed a later batch"):
            commit_once(ModelSteps(world, 2))
    check(world, 2)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("writes_there", [True, False])
def test_rows_that_are_open_where_the_next_batches_write_nothing(commit: bool, writes_there: bool) -> None:
    """Their markers were left out, and the query's marker has moved on when their partition has a leader."""
    world = World()
    assert commit_once(ModelSteps(world, 0))
    world.kafka.forgets = lambda: ((0,), False)
    if commit:
        assert commit_once(ModelSteps(world, 1))
    else:
        world.fate = lambda name: "killed before" if name == "end" else "answered"
        with pytest.raises(KilledError):
            commit_once(ModelSteps(world, 1))
        world.fate = lambda name: "answered"
    world.spread, world.tells = (lambda: (1,)), (lambda: False)
    for batch in (1, 2, 3):
        assert commit_once(ModelSteps(world, batch)) is not (commit and batch == 1)
    assert world.kafka.partitions[0].undecided
    world.calm_down()
    world.spread = lambda: (0 if writes_there else 1,)
    assert commit_once(ModelSteps(world, 4))
    assert not world.kafka.partitions[0].undecided
    check(world, 4)


def test_a_marker_that_went_back_to_nothing() -> None:
    """By a query's first batch, before its driver could note that it is committed."""
    world = World()
    assert commit_once(ModelSteps(world, 0))
    world.kafka.marker = None
    for _ in range(2):
        with pytest.raises(OldMarkerError, match=r"committed a later batch .*there is no marker"):
            commit_once(ModelSteps(world, 0))
    check(world, 0)


@pytest.mark.parametrize("after", ["end", "all"])
def test_a_transaction_that_carries_out_another_has_no_marker(after: str) -> None:
    """Its driver is killed right after it; that it is newer than the marker proves nothing."""
    world = World()
    assert commit_once(ModelSteps(world, 0))
    ModelSteps(world, 0).confirm()
    world.kafka.forgets = lambda: ((0,), True)
    assert commit_once(ModelSteps(world, 1))
    world.kafka.forgets = lambda: ((), False)
    killed, how = ("end", "killed after") if after == "end" else ("init", "killed before")
    world.fate = lambda name: how if name == killed else "answered"
    with pytest.raises(KilledError):
        commit_once(ModelSteps(world, 1))
    world.calm_down()
    for batch in (1, 2):
        commit_once(ModelSteps(world, batch))
    check(world, 2)


def test_what_was_seen_with_an_old_epoch_is_looked_at_again() -> None:
    """Another driver may have committed before the last fence."""
    steps = Noted(behind=1)
    assert commit_once(steps)
    assert steps.done == ["fence", "read", *STEPS]


@pytest.mark.parametrize("back", [1, 2, 3, 4])
def test_a_coordinator_whose_state_went_back(back: int) -> None:
    """It gives epochs that were used: with the same one, the partition takes rows for those that it has."""
    world = World()
    for batch in range(4):
        assert commit_once(ModelSteps(world, batch))
    world.kafka.epoch -= back
    for batch in (4, 5):
        assert commit_once(ModelSteps(world, batch))
    check(world, 5)


def test_epochs_that_only_the_partition_has_seen() -> None:
    """A batch was given up, or its driver killed: its epochs are later than the marker's."""
    world = World()
    assert commit_once(ModelSteps(world, 0))
    world.fate = lambda name: "killed before" if name == "mark" else "answered"
    with pytest.raises(KilledError):
        commit_once(ModelSteps(world, 1))
    world.calm_down()
    world.kafka.init()
    world.kafka.epoch -= 2
    assert commit_once(ModelSteps(world, 1))
    check(world, 1)


@pytest.mark.parametrize("ended_by", ["a time-out", "a fence"])
def test_rows_that_were_committed_and_then_aborted(ended_by: str) -> None:
    """A coordinator forgot their markers, and the driver that wrote these was killed."""
    world = World()
    world.kafka.forgets = lambda: ((0,), False)
    steps = ModelSteps(world, 0)
    assert commit_once(steps)
    steps.confirm()
    world.fate = lambda name: "killed before" if name == "end" else "answered"
    with pytest.raises(KilledError):
        commit_once(ModelSteps(world, 1))
    world.calm_down()
    if ended_by == "a time-out":
        world.kafka.expire()
    else:
        world.kafka.init()  # of a driver that looked before
    with pytest.raises(CutShortError, match=r"coordinator aborted.*failOnMissingMarker"):
        commit_once(ModelSteps(world, 1))
    assert world.kafka.partitions[0].visible == []


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("ended_by", ["a time-out", "a fence"])
@pytest.mark.parametrize("aborts_marker", [True, False])
def test_a_driver_that_had_noted_what_it_settles(dies: str, ended_by: str, aborts_marker: bool) -> None:
    """It is killed before its transaction, or when that has the group of the marker alone."""
    world = World()
    world.kafka.forgets = lambda: ((0,), True)
    assert commit_once(ModelSteps(world, 0))
    world.fate = lambda name: f"killed {dies}" if name == "add" else "answered"
    with pytest.raises(KilledError):
        commit_once(ModelSteps(world, 0))
    world.calm_down()
    world.kafka.forgets = lambda: ((), not aborts_marker)
    if ended_by == "a time-out":
        world.kafka.expire()
    else:
        world.kafka.init()  # of a driver that looked before
    world.calm_down()
    if dies == "after" and aborts_marker:
        with pytest.raises(CutShortError, match="coordinator aborted"):
            commit_once(ModelSteps(world, 0))
        return
    assert not commit_once(ModelSteps(world, 0))
    assert commit_once(ModelSteps(world, 1))
    check(world, 1)


@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
def test_a_late_request_opens_again_what_is_committed(partitions: Sequence[int]) -> None:
    """The rows of a partition without a leader are open by then, and an abort would end them."""
    world = World()
    world.spread = lambda: partitions
    fates = iter(["late"])
    world.fate = lambda name: next(fates, "answered") if name == "add" else "answered"
    world.kafka.forgets = lambda: ((0,), False)
    complete(world, 0)
    world.calm_down()
    deliver(world)
    assert world.kafka.outcome is Outcome.OPEN
    complete(world, 1)
    check(world, 1)


def test_an_abort_whose_answer_is_lost_with_its_coordinator() -> None:
    """Asked again, the next one must not take a new epoch: the outcome would be hidden."""
    world = World()
    world.fate = lambda name: "killed before" if name == "end" else "answered"
    with pytest.raises(KilledError):
        commit_once(ModelSteps(world, 0))
    fates, left_out = iter(["answer lost"]), iter([((), True)])
    world.fate = lambda name: next(fates, "answered") if name == "init" else "answered"
    world.kafka.forgets = lambda: next(left_out, ((), False))
    complete(world, 0)
    check(world, 0)


def test_what_is_carried_out_and_forgotten_again() -> None:
    """Its driver dies once it has noted it; a later epoch carries it out, and the next one does so again."""
    world = World()
    world.kafka.forgets = lambda: ((), True)
    assert commit_once(ModelSteps(world, 0))
    world.fate = lambda name: "killed after" if name == "add" else "answered"
    with pytest.raises(KilledError):
        commit_once(ModelSteps(world, 0))
    world.fate = lambda name: "answered"
    world.kafka.expire()
    left_out = iter([((), True)])
    world.kafka.forgets = lambda: next(left_out, ((), False))
    assert not commit_once(ModelSteps(world, 0))
    complete(world, 1)
    check(world, 1)


def test_a_note_that_comes_when_all_is_settled() -> None:
    """Its driver was fenced by the one that has settled it."""
    world = World()
    world.kafka.forgets = lambda: ((0,), True)
    assert commit_once(ModelSteps(world, 0))
    world.calm_down()
    late = Settling(0, world.kafka.epoch, world.kafka.epoch, started=False)
    for batch in (0, 1):
        assert commit_once(ModelSteps(world, batch)) is bool(batch)
    ModelSteps(world, 1).note(new=late)
    assert commit_once(ModelSteps(world, 2))
    assert world.intent is not None
    assert world.intent.settling == ()
    check(world, 2)


def test_the_model_aborts_what_is_open_before_it_compares_epochs() -> None:
    kafka = Kafka()
    old, new = kafka.init(), kafka.init()
    kafka.add(new, partitions=[0])
    with pytest.raises(FencedError):
        kafka.init(old)
    assert kafka.open is None
