"""``python -m tests.campaign``: rounds of faults for some minutes, and a table of what was done and found."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.campaign.driver import Driver
from tests.campaign.faults import SESSION
from tests.campaign.members import BROKER_SETTINGS
from tests.campaign.rounds import Report, Running
from tests.campaign.schedule import FAULTS, Round, plan
from tests.kafka_cluster import Cluster
from tests.kafka_service import running
from tests.sessions import OF_SHORT_LIVED_JVMS

SETTINGS = {
    "broker.session.timeout.ms": 1000 * SESSION,
    "broker.heartbeat.interval.ms": 1000,
    # Expired and compacted records go within seconds.
    "log.initial.task.delay.ms": 1000,
    "log.retention.check.interval.ms": 1000,
    "log.cleaner.backoff.ms": 1000,
    **BROKER_SETTINGS,
}


def main() -> int:
    """Run the campaign; 1 if it found anything."""
    parser = argparse.ArgumentParser(prog="ci/campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="no round begins later (10)")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1_000_000), help="of all chance (random)"
    )
    parser.add_argument("--round", type=int, default=0, help="number of the first round (0)")
    parser.add_argument("--seconds", type=float, default=75, help="of faults in each round (75)")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS, help="only these")
    parser.add_argument("--folder", type=Path, help="where logs are kept (a new one in the temporary folder)")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="kafkalog-campaign-"))
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        # Brokers and Spark end with it, also where a shell has it in the background.
        signal.signal(signal_number, lambda number, frame: sys.exit(128 + number))
    os.environ.setdefault("JAVA_TOOL_OPTIONS", " ".join(OF_SHORT_LIVED_JVMS))
    print(f"seed {args.seed}, logs in {folder}", flush=True)
    total: Counter[str] = Counter()
    number = args.round
    with (
        running(Cluster(folder / "cluster", SETTINGS)) as cluster,
        contextlib.closing(Driver(folder)) as driver,
    ):
        deadline = time.monotonic() + 60 * args.minutes
        while time.monotonic() < deadline:
            planned = plan(args.seed, number, args.seconds, args.faults)
            print(f"round {number}: {planned}", flush=True)
            report = run_round(cluster, driver, planned, folder / f"round-{number}")
            total += report.counts
            total["rounds"] += 1
            total["findings"] += len(report.findings)
            print(f"round {number} is over: {len(report.findings)} findings", flush=True)
            if report.findings:
                show(args.seed, planned, report, folder)
            number += 1
    print("\n".join(f"{name:32} {count:10,}" for name, count in sorted(total.items())))
    if not total["findings"] and args.folder is None:
        shutil.rmtree(folder)
    return 1 if total["findings"] else 0


def run_round(cluster: Cluster, driver: Driver, planned: Round, folder: Path) -> Report:
    """A round, whose folder goes if it found nothing."""
    folder.mkdir(parents=True)
    running_round = Running(cluster, driver, planned, folder)
    try:
        report = running_round.run()
    except Exception as error:
        # It cannot be judged, which is a finding itself: of the campaign or of what it runs.
        report = running_round.report
        report.findings.append(f"the round broke off: {error!r}")
        driver.restart()
        cluster.heal()
    if not report.findings:
        shutil.rmtree(folder)
    return report


def show(seed: int, planned: Round, report: Report, folder: Path) -> None:
    """Print what is needed to look into the findings of a round."""
    print(f"FINDINGS of seed {seed}, round {planned.number}; logs in {folder}")
    print("\n".join(report.done))
    print("\n".join(f"* {finding}" for finding in report.findings), flush=True)


if __name__ == "__main__":
    sys.exit(main())
