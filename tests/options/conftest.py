"""Every test of options is told what there is to say of them, as by a new process."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.options.user_options import forget_logged


@pytest.fixture(autouse=True)
def _tell_again() -> None:
    forget_logged()
