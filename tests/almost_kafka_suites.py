"""``pytest --like event-hubs``: the tests that share a broker, with one that looks like another service.

What can't work there is in ``LACKING``; each of these tests must fail, and say what the table says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

SHARED = frozenset({"broker", "stoppable_broker"})
"""Fixtures of brokers that many tests share."""


class Lacking(NamedTuple):
    """What tests need and do not get. ``tests`` and ``says`` are regular expressions of ids and failures."""

    api: str
    tests: str
    says: str = ""
    """Without it, the failure has our error, which names the request."""

    @property
    def failure(self) -> str:
        return self.says or f"Expected {self.api}Request in one of versions .*the broker has none"


_TOPIC_IDS, _EPOCHS, _TIMES, _MEMBERS = (
    "Metadata v10",
    "Metadata v9",
    "ListOffsets v8",
    "ConsumerGroupHeartbeat",
)
_TRANSACTIONS = "AddPartitionsToTxn"

_IN_BOTH = (
    Lacking(_TOPIC_IDS, "broker/test_cluster.py::test_topics_and_ids_are_those_on_the_broker", "topic_id: "),
    Lacking(_TOPIC_IDS, "broker/test_connection.py::test_a_real_broker", r"version_of\(MetadataRequest\)"),
    Lacking(
        _TOPIC_IDS, "broker/test_fetch.py::test_a_topic_that_goes_while_it_is_read.True", "DID NOT RAISE"
    ),
    Lacking(
        _TOPIC_IDS, "broker/test_first_fetch.py::test_many_partitions_take_one_fetch", "ListOffsetsRequest"
    ),
    Lacking(_TOPIC_IDS, "broker/test_place.py::test_a_topic_made_anew_while_nobody_looked", "pollTimeoutMs"),
    Lacking(
        _TOPIC_IDS,
        "tools/backup/test_command.py::test_a_topic_made_anew_ends_with_1",
        "deleted and recreated",
    ),
    Lacking(
        _TOPIC_IDS,
        "tools/backup/test_command.py::test_(records_deleted|gaps_are_told)",
        r"assert (\(1, |1 == 0)",
    ),
    Lacking(
        _TOPIC_IDS, "parity/test_parity.py::.*a topic is recreated, and grows longer", r"'true': \[7, 8\]"
    ),
    Lacking(_TOPIC_IDS, "spark/test_doctor.py::test_a_broker_and_folders", "too many values to unpack"),
    Lacking(
        _TOPIC_IDS, "spark/test_read_brokers.py::test_a_topic_made_anew_after", "the log ends at 1, before"
    ),
    Lacking(_TOPIC_IDS, "spark/test_read_brokers.py::test_a_topic_made_anew_under.*shorter", "DID NOT RAISE"),
    Lacking(_TOPIC_IDS, "spark/test_views.py::test_views_of_brokers", "'NoneType' has no len"),
    Lacking(_EPOCHS, "broker/test_cluster.py::test_a_leader_is_known_and_a_missing", "epoch=-1"),
    Lacking(
        _EPOCHS,
        "tools/cli/test_habits.py::test_people_type_what_they_are_used_to",
        r"assert not .*topics describe[^,]*, out='TOPIC[^/]*0       1  -      1[^/]*', err=''\)\"\]",
    ),
    Lacking(_TIMES, "broker/test_place.py::test_newest_timestamps_and_sizes", "assert {} == {"),
    Lacking(_TIMES, "tools/topics/test_brokers.py::test_what_there_is", "1600000003000, None"),
    Lacking(_TIMES, "spark/test_read_brokers.py::test_filters.True", "assert 10 == 0"),
    Lacking(_MEMBERS, r"extensions/membership/test_member.py::.*(\[consumer\]|kind[34]|brokers_do_not_have)"),
    Lacking(
        _MEMBERS,
        "extensions/membership/test_member.py::.*(name_that_is_in_use|both_protocols|stay_as_they_are)",
    ),
    Lacking(_MEMBERS, r"spark/test_shared_groups.py::.*\[consumer\]"),
    Lacking(
        "ConsumerGroupDescribe", "broker/test_groups.py::test_a_group_whose_assignments", "is not stable"
    ),
    Lacking(
        "newer APIs",
        "tools/topics/test_brokers.py::test_brokers_and_topics_are_described",
        "'4.3.1'.startswith",
    ),
    Lacking("ListGroups v5", "broker/test_groups.py::test_a_share_group_is_known", "No share group"),
)

LACKING: Mapping[str, Sequence[Lacking]] = {
    "redpanda": (
        *_IN_BOTH,
        Lacking(
            _TOPIC_IDS,
            "extensions/exactly_once/test_settling.py::test_a_topic_that_is_made_anew",
            r"assert \[\] ==",
        ),
        Lacking("OffsetFetch v8", "broker/test_groups.py::test_many_groups_take_a_few_requests", "== .1, 1."),
        Lacking(
            "WriteTxnMarkers",
            "extensions/exactly_once/test_source_groups.py::test_(a_comm|what)",
            "reset by peer",
        ),
    ),
    "event-hubs": (
        *_IN_BOTH,
        Lacking(
            _EPOCHS, "broker/test_groups.py::test_a_start_from_commits_of_another_history", "DID NOT RAISE"
        ),
        Lacking("DescribeLogDirs", "spark/test_read_brokers.py::test_lag_in_bytes", "'int' and 'NoneType'"),
        Lacking(
            "IncrementalAlterConfigs", "tools/backup/test_lost_start.py::test_a_lost_end_is_not_restored"
        ),
        Lacking("IncrementalAlterConfigs", "tools/backup/test_restore_cases"),
        Lacking("IncrementalAlterConfigs", "tools/backup/test_restore_kills.py::test_kills_at_any_moment"),
        Lacking(
            "IncrementalAlterConfigs",
            "tools/backup/test_restore_kills.py::test_one_restore",
            "assert 3 is None",
        ),
        Lacking("IncrementalAlterConfigs", "tools/cli/test_habits.py::test_what_is_told_works"),
        Lacking(
            "IncrementalAlterConfigs",
            "tools/backup/test_restore_command.py::test_offsets_of_any_age",
            "JSONDecodeError",
        ),
        Lacking(
            "IncrementalAlterConfigs",
            "tools/backup/test_restore_command.py::test_topics_that_exist",
            r"assert \(3, False\)",
        ),
        Lacking("IncrementalAlterConfigs", "tools/backup/test_restore_command"),
        Lacking("DeleteRecords", "tools/care/test_retain.py::test_brokers", r"assert \(3, ''\)"),
        Lacking(
            "DeleteRecords", "broker/test_fetch.py::test_a_range_that_compaction_emptied", "may be throttling"
        ),
        Lacking("OffsetDelete", "broker/test_groups.py::test_(a_group_with_live|offsets_and_groups)"),
        Lacking(
            "DescribeTransactions", "broker/test_groups.py::test_only_who_needs_it_waits", "UNSTABLE_OFFSET"
        ),
        Lacking("InitProducerId v3", "broker/test_produce.py::test_tasks_of_a_process_go_on", "3 == 1"),
        Lacking(_TRANSACTIONS, "extensions/exactly_once/test_(settling|set_back|source_groups|refusals)"),
        Lacking(
            _TRANSACTIONS,
            "extensions/exactly_once/test_transactions.py::(?!.*(a_job_without_rows|a_longer_transaction"
            "|no_transaction_holds|do_not_share_a_folder|a_full_disk))",
        ),
        Lacking(_TRANSACTIONS, "extensions/exactly_once/test_transaction_faults", "does not come so far"),
        Lacking(_TRANSACTIONS, "spark/test_exactly_once.py::(?!.*(are_refused|must_say_where|of_a_batch))"),
        Lacking(_TRANSACTIONS, "spark/test_histories.py::TestBrokers"),
        Lacking(_TRANSACTIONS, "spark/test_way_back.py::test_an?_(exactly|micro)"),
        Lacking(_TRANSACTIONS, "spark/test_(avro_write|transform).py::.*exactly.once"),
        Lacking(_TRANSACTIONS, "faults/test_dead_letter_kills.py::test_killed_at_steps", "output_tail"),
        Lacking("AddOffsetsToTxn", "tools/redrive/test_redrive"),
        Lacking("AddOffsetsToTxn", "faults/test_redrive_kills"),
    ),
}
"""By service; the first entry that fits a test counts."""


class Suites:
    """The plugin of pytest for such a run."""

    def __init__(self, service: str) -> None:
        self._service = service

    def _lacking(self, item: pytest.Item) -> Lacking | None:
        fitting = (one for one in LACKING[self._service] if re.match(f"tests/{one.tests}", item.nodeid))
        return next(fitting, None)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if SHARED.isdisjoint(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if not SHARED.isdisjoint(getattr(item, "fixturenames", ()))]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """A test of the table that fails as it should is expected to fail; one that passes is a failure."""
        report = yield
        lacking = self._lacking(item)
        if lacking is None or report.when == "teardown" or report.skipped:
            return report
        if report.failed and re.search(lacking.failure, report.longreprtext, re.DOTALL):
            report.outcome, report.wasxfail = "skipped", lacking.api
        elif report.failed:
            report.sections.append(
                (lacking.api, f"Without it, expected a failure that says {lacking.failure}")
            )
        elif report.when == "call":
            report.outcome = "failed"
            report.longrepr = f"It passes without {lacking.api}: take it off the table"
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """How many tests passed, and how many can't, by what is missing."""
        stats = terminalreporter.stats
        lacking = Counter(report.wasxfail for report in stats.get("xfailed", ()))
        terminalreporter.section(f"like {self._service}")
        terminalreporter.line(
            f"{len(stats.get('passed', ()))} tests pass, {lacking.total()} need what it lacks, "
            f"{len(stats.get('failed', ())) + len(stats.get('error', ()))} fail"
        )
        for api, count in lacking.most_common():
            terminalreporter.line(f"{count:5} need {api}")
