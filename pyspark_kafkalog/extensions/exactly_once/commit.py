"""THE order of steps that makes a batch visible once: settle, fence, read the marker, produce, mark, end.

Nothing here knows how a step is done, so that tests can run it against a model of the coordinator.
:mod:`.committing` has the steps, and docs/exactly-once-protocol.md the reasons.
"""

from __future__ import annotations

import enum
from typing import Protocol

from pyspark_kafkalog.errors import FencedError, TransactionError
from pyspark_kafkalog.extensions.exactly_once.marker import LostRowsError, Marker, OldMarkerError


class PendingOffsetError(TransactionError):
    """A commit of the marker stays pending, and how it was decided can't be found out."""


class EndedTransactionError(TransactionError):
    """The open transaction was ended by somebody else, or by a coordinator that was paused."""


class UnknownResultError(TransactionError):
    """No answer says whether the transaction was committed; its marker does."""


_WORTH_ANOTHER_RUN = (
    FencedError,
    EndedTransactionError,
    UnknownResultError,
    OldMarkerError,
    LostRowsError,
)


class Outcome(enum.Enum):
    """The outcome of the newest transaction of a transactional id, as its coordinator has decided."""

    OPEN = enum.auto()
    ENDING = enum.auto()
    """The outcome is decided, and is being carried out."""
    COMMITTED = enum.auto()
    ABORTED = enum.auto()
    NOT_KNOWN = enum.auto()
    """A later fence has replaced it."""
    NOT_TOLD = enum.auto()
    """The brokers are older than the request that asks (Kafka 3.0)."""


class Steps(Protocol):
    """The steps of a commit, each for one transactional id. All but :meth:`give_up` may raise."""

    def is_pending(self) -> bool:
        """Whether a commit of the marker has been sent whose transaction is not over; asked before the fence.

        Even if the newest transaction is still being completed, an earlier run was killed in
        :meth:`carry_out`, or a late request has opened again what was committed.
        """

    def outcome(self) -> Outcome:
        """The outcome of the newest transaction; asked only if something is pending."""

    def abort_open(self) -> None:
        """Have the newest transaction, which is open, aborted."""

    def carry_out(self, outcome: Outcome) -> None:
        """Write the markers of a transaction that is ``COMMITTED`` or ``ABORTED`` where they are missing."""

    def check_newest(self) -> None:
        """See that the marker is not older than the newest transaction; a fence hides that.

        Each transaction that is committed has a marker, except those of :meth:`carry_out`.

        :raises OldMarkerError: if it is.
        """

    def fence(self) -> None:
        """Take over the transactional id: older runs can do no more, and what they began is over."""

    def read_marker(self) -> Marker | None:
        """The last committed marker; called only after :meth:`fence`.

        :raises PendingOffsetError: if that is not decided.
        """

    def is_committed(self, marker: Marker | None) -> bool:
        """Whether the batch was committed before.

        :raises TransactionError: if the marker does not tell.
        """

    def open_outcome(self, marker: Marker | None) -> Outcome | None:
        """The outcome of an earlier batch's rows that are still open where this one writes, if any."""

    def outrun(self, marker: Marker | None) -> bool:
        """Fence on until the epoch is above all that the marker, or a partition that gets rows, has seen.

        It is, unless the coordinator's state went back. With an epoch that was used before, leaders may take
        rows for those that they have, and markers are refused. Returned is whether it was needed.
        """

    def begin(self) -> None:
        """Add all partitions and groups to the transaction."""

    def produce(self) -> None:
        """Produce all rows, and wait until they are acknowledged."""

    def mark(self) -> None:
        """Commit the marker, and other groups' offsets, as parts of the transaction."""

    def end(self) -> None:
        """Commit the transaction. If the result is unknown, ask for the same again, never for an abort."""

    def give_up(self) -> None:
        """End the open transaction without a trace; never raises. Not called once :meth:`end` has begun."""

    def wait(self) -> None:
        """Pause before a step is repeated.

        :raises PendingOffsetError: if there is no time left.
        """

    def calm_down(self, error: TransactionError | FencedError) -> None:
        """Pause before all is run again because of ``error``."""


def commit_once(steps: Steps) -> bool:
    """Commit a batch unless it was committed before; returns whether it was this run that did it.

    What may come from one late or lost request, or from a coordinator or leader that does not know yet that
    it was deposed, is run again once, as the marker tells what has come of it.
    """
    try:
        return _commit(steps)
    except _WORTH_ANOTHER_RUN as e:
        steps.calm_down(e)
    return _commit(steps)


def take_over(steps: Steps) -> Marker | None:
    """Shut out older runs, and read the marker: what they have begun is over."""
    _settle(steps)
    steps.check_newest()
    steps.fence()
    return steps.read_marker()


def _commit(steps: Steps) -> bool:
    while True:
        marker = take_over(steps)
        is_committed = steps.is_committed(marker)
        outcome = steps.open_outcome(marker)
        if is_committed and outcome is None:
            return False
        if steps.outrun(marker):
            continue
        if outcome is None:
            break
        steps.carry_out(outcome)  # with an epoch that no other transaction may have
        steps.wait()
    try:
        steps.begin()
        steps.produce()
        steps.mark()
    except BaseException:
        steps.give_up()
        raise
    steps.end()
    return True


def _settle(steps: Steps) -> None:
    """See that what was decided earlier has come into effect: a fence would make that impossible to tell.

    Before Kafka 3.0 something may stay pending, as only the fence ends it.
    """
    while steps.is_pending():
        outcome = steps.outcome()
        if outcome is Outcome.NOT_TOLD:
            return  # the fence ends what is open, and then the marker shows whether that was all
        if outcome is Outcome.OPEN:
            steps.abort_open()
        elif outcome in (Outcome.COMMITTED, Outcome.ABORTED) and steps.is_pending():
            steps.carry_out(outcome)  # it has not just been completed
        steps.wait()
