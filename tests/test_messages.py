"""What counts as a message of the package."""

from __future__ import annotations

from tests.messages import messages_of

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


def test_what_counts_as_a_message() -> None:
    assert list(messages_of(_MODULE)) == [
        "Do this.",
        "Expected {…}{…}",
        ", or nothing",
        "%s: gone",
    ]
