"""A covering part of the kill matrix: each process, and steps before, amid and after a transaction.

``ci/test`` runs two of its combinations, the soak the others, and ``ci/kill-matrix`` all of the matrix.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.faults.kill_matrix import (
    ALL,
    BROKER,
    COMMITTER,
    DEAD_LETTERS,
    DRIVER,
    EXECUTOR,
    WORKER,
    Combination,
    Matrix,
)
from tests.kafka import Broker
from tests.kafka_service import running

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

TESTED = [Combination(EXECUTOR, "staged", "same")]
LONG = [Combination(COMMITTER, "produced", "7 shuffled")]
SOAKED = [
    Combination(WORKER, "staging", "7"),
    Combination(COMMITTER, "ended", "1"),
    Combination(BROKER, "marked", "7"),
    Combination(DRIVER, "producing", "1"),
    Combination(EXECUTOR, "marked", DEAD_LETTERS),
]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    folder = tmp_path_factory.mktemp("kill-matrix")
    soon = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
    with (
        running(Broker(folder / "broker", soon)) as broker,
        contextlib.closing(Matrix(folder / "runs", broker)) as matrix,
    ):
        yield matrix


@pytest.mark.parametrize(
    "combination",
    [
        *TESTED,
        *(pytest.param(each, marks=pytest.mark.long) for each in LONG),
        *(pytest.param(each, marks=pytest.mark.soak) for each in SOAKED),
    ],
    ids=str,
)
def test_killed(matrix: Matrix, combination: Combination) -> None:
    assert combination in ALL
    matrix.run(combination)
