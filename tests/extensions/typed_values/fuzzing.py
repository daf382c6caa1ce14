"""The command of the fuzzers of values.

``python -m tests.extensions.typed_values.json.fuzz --count 1000000 --seed 7``
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Protocol


class Run(Protocol):
    """Decodes ``count`` hostile values, ``compared`` of each batch also by an oracle; what came of them."""

    def __call__(self, seed: int, count: int, *, compared: int) -> Counter[str]: ...


def main(run: Run, beside: str) -> None:
    """Print what came of them.

    :param beside: the version of what they were compared with, or made by.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compared", type=int, default=0)
    options = parser.parse_args()
    begun = time.monotonic()
    outcome = run(options.seed, options.count, compared=options.compared)
    for what, times in outcome.most_common():
        print(f"{times:10} {what}")
    print(f"{options.count} values in {time.monotonic() - begun:.0f} s; {beside}")
