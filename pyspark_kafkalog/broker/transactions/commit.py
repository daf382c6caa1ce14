"""THE order of steps that makes a batch visible once: fence, read the marker, produce, mark, end.

Nothing here knows how a step is done, so that tests can run it against a model of the coordinator.
:mod:`.committing` has the steps, and docs/exactly-once.md the reasons.
"""

from __future__ import annotations

from typing import Protocol

from pyspark_kafkalog.broker.transactions.marker import Marker
from pyspark_kafkalog.errors import TransactionError

_ATTEMPTS = 3
"""How often to look for the marker, when each time an older commit of it hangs."""


class PendingOffsetError(TransactionError):
    """Another transaction has a commit of the marker that stays pending."""


class Steps(Protocol):
    """What a commit does, each step for one transactional id. All but :meth:`give_up` may raise."""

    def fence(self) -> None:
        """Take over the transactional id: older runs can do no more, and what they began is over."""

    def read_marker(self) -> Marker | None:
        """What was committed last; called only after :meth:`fence`.

        :raises PendingOffsetError: if that is not decided.
        """

    def clear_marker(self) -> None:
        """Abort a commit of the marker that stays pending; another :meth:`fence` must follow."""

    def is_committed(self, marker: Marker | None) -> bool:
        """Whether the batch was committed before.

        :raises TransactionError: if the marker does not tell.
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


def commit_once(steps: Steps) -> bool:
    """Commit a batch unless it was committed before; returns whether it was this run that did it."""
    for attempt in range(_ATTEMPTS):
        steps.fence()
        try:
            marker = steps.read_marker()
            break
        except PendingOffsetError:
            if attempt == _ATTEMPTS - 1:
                raise
            steps.clear_marker()
    if steps.is_committed(marker):
        return False
    try:
        steps.begin()
        steps.produce()
        steps.mark()
    except BaseException:
        steps.give_up()
        raise
    steps.end()
    return True
