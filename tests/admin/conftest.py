"""The places that tests of ``connect`` run on."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["directory", pytest.param("brokers", marks=pytest.mark.broker)])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The options of an empty directory, or of a running broker."""
    if request.param == "directory":
        return {"path": str(tmp_path)}
    return {"kafka.bootstrap.servers": request.getfixturevalue("broker").bootstrap}
