"""What a round does, and when: all of it follows from the campaign's seed and the round's number."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import NamedTuple

from tests.campaign.members import PROTOCOLS

BROKER_FAULTS = {
    "pause": 2,
    "pause_until_planned": 2,
    "kill": 2,
    "restart": 1,
    "kill_at_end": 2,
    "set_back_broker": 1,
    "lose_leader": 1,
}
"""What befalls one broker at a time, as any two are needed to acknowledge, and how often."""
OTHER_FAULTS = (
    "move_leaders",
    "move_coordinator",
    "cut",
    "reset",
    "slow",
    "half_open",
    "remake_topic",
    "add_partitions",
    "delete_records",
    "delete_unread",
    "retain",
    "compact",
    "kill_driver",
    "kill_planner",
    "kill_workers",
    "set_back_checkpoint",
    "set_back_directory",
    "lose_power",
    "set_back_group",
    "kill_backup",
    "set_back_backup",
    "respell",
    "write_to_backup",
    "swap_disks",
)
"""What may happen meanwhile, one after the other."""
MEMBER_FAULTS = ("stop_member", "pause_member", "kill_member")
"""What befalls members of a group that shares topics, which there is only if one of these is to be done."""
FAULTS = (*BROKER_FAULTS, *OTHER_FAULTS, *MEMBER_FAULTS)

_BROKER_SECONDS = {
    "pause": (8.0, 24.0),
    "pause_until_planned": (10.0, 15.0),
    "kill": (8.0, 15.0),
    "restart": (8.0, 8.0),
    "kill_at_end": (8.0, 12.0),
    "set_back_broker": (8.0, 12.0),
    "lose_leader": (25.0, 35.0),
}
"""How long a broker stands still or is away: longer than its session of 6 s.

After about 15 s a stream has finished what it began before a pause, and planned again.
"""
_OTHER_SECONDS = (2.0, 8.0)
_MEMBER_SECONDS = (1.0, 6.0)
"""How long a member is away; one that is paused for so much longer than its session."""
_WAIT = (1.0, 6.0)


class NotDone(Exception):  # noqa: N818 - a fault that was not possible then
    """There was nothing to hit, or the cluster could not do it because of other faults."""


class Step(NamedTuple):
    """A fault, ``wait`` seconds after the one before it in its lane, that lasts ``seconds``."""

    wait: float
    fault: str
    seconds: float
    choice: float
    """From 0 to 1: which of the then existing ones is hit."""

    def __str__(self) -> str:
        return f"+{self.wait} s {self.fault} ({self.seconds} s, {self.choice})"


class Round(NamedTuple):
    """One round: how its streams are set up, and its faults in lanes that run side by side."""

    number: int
    topic_ids: bool
    """False: clients see brokers without topic ids, as before Kafka 2.8."""
    fail_on_data_loss: bool
    """Of the streams whose topics lose nothing."""
    read_committed: bool
    rejoins: bool
    """Whether a query that its group has put out joins again by itself, or ends."""
    lanes: tuple[tuple[Step, ...], ...]

    @property
    def is_shared(self) -> bool:
        """Whether a group shares topics."""
        return any(step.fault in MEMBER_FAULTS for lane in self.lanes for step in lane)

    @property
    def protocol(self) -> str:
        """By which the group's members agree: that of KIP-848 needs topic ids."""
        names = [name for name in PROTOCOLS if self.topic_ids or name != "consumer"]
        return names[self.number % len(names)]

    def __str__(self) -> str:
        settings = f"topic_ids={self.topic_ids} failOnDataLoss={self.fail_on_data_loss}"
        settings += f" read_committed={self.read_committed}"
        settings += f" rejoins={self.rejoins} protocol={self.protocol if self.is_shared else None}"
        return "\n".join([settings, *("  " + ", ".join(map(str, lane)) for lane in self.lanes)])


def plan(seed: int, number: int, seconds: float, faults: Collection[str] = FAULTS) -> Round:
    """Round ``number``, of about so many seconds, with no other faults than these."""
    dice = random.Random(f"{seed}/{number}")
    topic_ids, fail_on_data_loss, read_committed, rejoins = (
        dice.random() < share for share in (0.7, 0.5, 0.5, 0.5)
    )
    kinds = [kind for kind in BROKER_FAULTS if kind in faults]
    weights = [BROKER_FAULTS[kind] for kind in kinds]
    brokers: list[Step] = []
    while kinds and _length(brokers) < seconds:
        (kind,) = dice.choices(kinds, weights)
        brokers.append(_step(dice, kind, _BROKER_SECONDS[kind]))
    others: list[Step] = []
    deck = [kind for kind in OTHER_FAULTS if kind in faults and (topic_ids or kind != "remake_topic")]
    dice.shuffle(deck)
    while deck and _length(others) < seconds:
        others.append(_step(dice, deck[len(others) % len(deck)], _OTHER_SECONDS))
    members: list[Step] = []
    kinds = [kind for kind in MEMBER_FAULTS if kind in faults]
    while kinds and _length(members) < seconds:
        members.append(_step(dice, dice.choice(kinds), _MEMBER_SECONDS))
    settings = topic_ids, fail_on_data_loss, read_committed, rejoins
    return Round(number, *settings, (tuple(brokers), tuple(others), tuple(members)))


def _step(dice: random.Random, fault: str, seconds: tuple[float, float]) -> Step:
    wait, lasting, choice = round(dice.uniform(*_WAIT), 1), round(dice.uniform(*seconds), 1), dice.random()
    return Step(wait, fault, lasting, round(choice, 3))


def _length(steps: Collection[Step]) -> float:
    return sum(step.wait + step.seconds for step in steps)
