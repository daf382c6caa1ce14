"""Every test of options logs its messages again, like a new process."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.options.user_options import log_once_for


@pytest.fixture(autouse=True)
def _tell_again() -> None:
    log_once_for.cache_clear()
