"""The order of steps against a model of Kafka: once, whatever is lost, late or killed; broken orders fail.

The broken orders and steps are below. Those of the package itself are seeded by ``ci/mutants``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from pyspark_kafkalog.broker.transactions.commit import PendingOffsetError, commit_once
from pyspark_kafkalog.broker.transactions.marker import Marker
from pyspark_kafkalog.errors import TransactionError
from tests.broker.transactions.model import FencedError, Kafka, KilledError, ModelSteps, UnknownError, World

FAULTS = ["lost", "answer lost", "late", "killed before", "killed after"]
FAULTS += ["another driver", "timeout", "deliver"]
WORLDS = tuple(st.sampled_from(["answered"] * calm + FAULTS) for calm in (8, 24))
"""Some orders break where much goes wrong at once, others where nearly all goes well."""
Commit = Callable[[ModelSteps], bool]


class BrokenError(AssertionError):
    """The guarantee does not hold."""


def run(data: st.DataObject, commit: Commit, make: type[ModelSteps] = ModelSteps, batches: int = 3) -> None:
    """Run micro-batches as Spark does, each until it succeeds, in a world where anything may happen."""
    world = World()
    fates = data.draw(st.sampled_from(WORLDS), label="world")
    depth = 0

    def fate(name: str) -> str:
        nonlocal depth
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

    def attempt(batch: int) -> bool:
        steps = make(world, batch)
        try:
            commit(steps)
        except (FencedError, UnknownError, KilledError, TransactionError):
            return False
        steps.confirm()
        return True

    world.fate = fate
    world.deposed = deposed
    for batch in range(batches):
        tries = 0
        while not attempt(batch):
            tries += 1
            if tries == 3:  # from now on all goes well
                world.fate, world.deposed = (lambda name: "answered"), (lambda: False)
        world.fate, world.deposed = fate, deposed
        check(world, batch)
    deliver(world)
    check(world, batches - 1)
    if world.kafka.undecided:
        raise BrokenError("rows of no transaction, which block readers")


def deliver(world: World) -> None:
    """What was late arrives now."""
    late, world.late = world.late, []
    for request in late:
        with suppress(FencedError):
            request()


def check(world: World, newest: int) -> None:
    expected = [f"{batch}.{n}" for batch in range(newest + 1) for n in range(ModelSteps.rows)]
    if world.kafka.visible != expected:
        raise BrokenError(f"expected {expected}, got {world.kafka.visible}")


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
        self.world.kafka.marker = Marker("query", None, self.batch, "", self.rows)


class TrustsTheFirstLook(ModelSteps):
    """A deposed coordinator's answer is believed."""

    def mark(self) -> None:
        marker = Marker("query", None, self.batch, "", self.rows)
        self.ask("mark", lambda: self.world.kafka.mark(self.epoch, marker))


class LooksOnce(TrustsTheFirstLook):
    """For an order whose fault a second look would find, too: no coordinator is deposed."""


class CountsOnAtARetry(ModelSteps):
    """A record batch without an answer is sent again with a new sequence number."""

    def produce(self) -> None:
        sequence = 0
        for number in range(self.rows):
            rows = f"{self.batch}.{number}"
            for _ in range(2):
                fate = self.world.fate("produce")
                if fate.startswith("killed"):
                    self.dead = True
                    raise KilledError
                if fate not in ("lost", "late"):
                    self.world.kafka.produce(self.epoch, sequence, rows)
                    sequence += 1
                if fate == "answered":
                    break


@pytest.mark.parametrize(
    ("commit", "make"),
    [
        (looks_before_it_fences, LooksOnce),
        (commit_once, FencesOnce),
        (commit_once, AbortsByEndTxn),
        (commit_once, MarksOutsideOfTheTransaction),
        pytest.param(commit_once, TrustsTheFirstLook, marks=pytest.mark.soak),
        (commit_once, CountsOnAtARetry),
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
    """Steps that only note their names; one of them fails, and the marker is pending for so many looks."""

    def __init__(self, *, fails: str = "", pending: int = 0) -> None:
        self.done: list[str] = []
        self.fails = fails
        self.pending = pending

    def _do(self, step: str) -> None:
        self.done.append(step)
        if step == self.fails:
            raise UnknownError

    def fence(self) -> None:
        self._do("fence")

    def read_marker(self) -> Marker | None:
        self._do("read")
        self.pending -= 1
        if self.pending >= 0:
            raise PendingOffsetError("pending")
        return None

    def clear_marker(self) -> None:
        self._do("clear")

    def is_committed(self, marker: Marker | None) -> bool:
        return False

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
    steps = Noted(fails=step)
    with pytest.raises(UnknownError):
        commit_once(steps)
    reached = STEPS[: STEPS.index(step) + 1]
    given_up = ["give up"] if step in ("begin", "produce", "mark") else []
    assert steps.done == [*reached, *given_up]


def test_a_pending_marker_is_cleared_and_everything_begins_anew() -> None:
    steps = Noted(pending=2)
    assert commit_once(steps)
    assert steps.done == ["fence", "read", "clear", "fence", "read", "clear", *STEPS]
    with pytest.raises(PendingOffsetError):
        commit_once(Noted(pending=9))


def test_the_model_aborts_what_is_open_before_it_compares_epochs() -> None:
    kafka = Kafka()
    old, new = kafka.init(), kafka.init()
    kafka.add(new, partition=True)
    with pytest.raises(FencedError):
        kafka.init(old)
    assert kafka.open is None
