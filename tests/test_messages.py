"""The wording of every message is kept in messages.txt, so that a change of it is seen and read."""

from __future__ import annotations

from tests.messages import GOLDEN, messages_of, page

_MODULE = '''
"""A docstring of a module."""
_HINT = "Do this."

def f(x):
    """A docstring of a function."""
    raise ValueError(f"Expected {x!r}{', or nothing' if x else ''}", hint=_HINT)

@click.option("--all", help="What click shows.")
@group.command()
def show():
    """What click shows, too."""
    log.warning("%s: gone", re.compile("[a-z] of it"))
    return " %d %s", "single"
'''


def test_messages_are_those_that_were_read() -> None:
    assert page() == GOLDEN.read_text(encoding="utf-8"), "read what changes, after you have run ci/messages"


def test_what_counts_as_a_message() -> None:
    assert list(messages_of(_MODULE)) == [
        "Do this.",
        "Expected {…}{…}",
        ", or nothing",
        "%s: gone",
    ]
