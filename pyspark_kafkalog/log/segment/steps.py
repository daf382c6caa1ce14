"""A step of a repair: the action, its file and its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["cut", "trim", "remove", "rename", "rebuild", "undo", "abort", "forget", "skip", "leave"]
"""``cut`` takes bytes out of a segment, ``trim`` zeros off its end that a broker has preallocated, ``abort``
puts markers in that end transactions. ``forget`` gives up offsets that a backup had, and has no more.
``skip`` is for what is in order and no concern of a repair, ``leave`` for what it can't mend."""


@dataclass(frozen=True, slots=True)
class RepairStep:
    """A step of a repair, done or only planned.

    :param file: its path.
    :param why: a clause that says what is wrong.
    :param position: byte in the file from which on ``size`` bytes are cut or trimmed.
    :param offset: the first offset that readers lose by a cut, or miss.
    """

    action: Action
    file: str
    why: str
    position: int | None = None
    size: int | None = None
    offset: int | None = None
