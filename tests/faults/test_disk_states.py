"""Whatever a kill or a loss of power leaves: rows are whole or absent, and a replay completes them."""

from __future__ import annotations

import os

import pytest

from tests.faults.disk_states import SCENARIOS, Scenario, check_states


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_states_of_the_disk(tmp_path, monkeypatch, seed, soak, scenario: Scenario):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    checked = check_states(scenario, tmp_path, seed, power=2, share=1 if soak else 0.06)
    assert checked["kill"] > 5
    assert checked["power"] > 10
