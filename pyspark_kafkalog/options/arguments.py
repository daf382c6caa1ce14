"""Arguments of calls in Python: another kind than a call takes is refused, with how it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from numbers import Integral

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.settings import Selection

_PARTITION = 'TopicPartition("orders", 0)'
_NAMES: Mapping[type, str] = {Integral: "a whole number", str: "a text", Mapping: "a dict"}
_QUOTED = re.compile(r"[\w.:-]{0,100}", re.ASCII)
"""The texts that an error quotes: names, and nothing with a login."""


def check_kind(given: object, kind: type, example: str) -> None:
    """Refuse what is not of a kind; ``example`` is how a call with it is written.

    :raises OptionError: for anything else.
    """
    if not isinstance(given, kind) or isinstance(given, bool):
        expected = _NAMES.get(kind, kind.__name__)
        raise OptionError(f"Expected {expected}, got {_got(given)}", hint=f"Write {example}.")


def check_all(given: Iterable[object], kind: type, example: str) -> None:
    """Refuse what is not a list of a kind.

    :raises OptionError: for anything else, also in the list.
    """
    expected, hint = f"Expected a list of {kind.__name__}", f"Write {example}."
    if isinstance(given, kind):
        raise OptionError(f"{expected}, got one by itself", hint=hint)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise OptionError(f"{expected}, got {_got(given)}", hint=hint)
    for one in given:
        if not isinstance(one, kind):
            raise OptionError(f"{expected}, got {_got(one)} in it", hint=hint)


def check_partitions(given: Iterable[TopicPartition] | None) -> None:
    """Refuse what is neither a list of partitions nor None.

    :raises OptionError: for names of topics, and for anything else.
    """
    if given is not None:
        check_all(given, TopicPartition, f"[{_PARTITION}]")


def check_offsets(given: Mapping[TopicPartition, object], kind: type, example: str) -> None:
    """Refuse what is not a dict of offsets of a kind, such as ``example``, by partition.

    :raises OptionError: for anything else.
    """
    written = f"{{{_PARTITION}: {example}}}"
    check_kind(given, Mapping, written)
    check_all(given, TopicPartition, written)
    for offset in given.values():
        check_kind(offset, kind, written)


def check_selection(given: Selection | None) -> None:
    """Refuse what is neither a selection nor None.

    :raises OptionError: for names of topics, and for anything else.
    """
    if given is not None:
        check_kind(given, Selection, 'Selection(topics=("orders",))')


def check_rows(given: object, example: str) -> None:
    """Refuse what is not a DataFrame of Spark.

    :raises OptionError: for anything else.
    """
    if not hasattr(type(given), "writeStream"):  # of a batch, Spark raises where it is asked for
        raise OptionError(f"Expected the rows as a DataFrame, got {_got(given)}", hint=f"Write {example}.")


def _got(given: object) -> str:
    return repr(given) if isinstance(given, str) and _QUOTED.fullmatch(given) else type(given).__name__
