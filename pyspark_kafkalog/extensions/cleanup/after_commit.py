"""Old records after a commit to a log directory: those that are due are deleted, and topics are compacted.

It looks where a segment has rolled, and at least once in 5 minutes: nothing else makes much due. Where time
was too short, or something failed, the next commit looks again. Source: Kafka's
``LogCleaner.cleanFilthiestLog``, ``LogCleanerManager.grabFilthiestCompactedLog``.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from pyspark_kafkalog.errors import (
    UNREADABLE,
    CorruptRecordError,
    LogDirectoryError,
    OptionError,
    OversizedRecordError,
)
from pyspark_kafkalog.extensions.cleanup import deleting
from pyspark_kafkalog.extensions.cleanup.compacting import cleanable_now, compact_held
from pyspark_kafkalog.extensions.cleanup.compaction import CompactionSettings
from pyspark_kafkalog.extensions.cleanup.policies import DeletePolicy
from pyspark_kafkalog.extensions.cleanup.retention import RetentionRules
from pyspark_kafkalog.extensions.cleanup.unfinished import TimeLimit, load
from pyspark_kafkalog.filesystem.durable import disk_errors, replace
from pyspark_kafkalog.filesystem.locate import local_folder, open_folder
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.topics import cleanup_policies

CHECK_MS = 300_000
"""The pause between looks at partitions without new segments: log.retention.check.interval.ms."""
COMPACTION_SECONDS = 5.0
"""The time after which a commit ends what it compacts, at the next whole segment."""
_CHECKED_FILE = ".kafkalog-cleanup"
"""The file with the time of the last look at each topic: JSON, ms by topic."""

_log = logging.getLogger("pyspark_kafkalog")


class AfterCommit:
    """Deletes and compacts after commits: see :class:`pyspark_kafkalog.log.sink.CleanUp`.

    :param delete_policy: the import path of a delete policy.
    :raises OptionError: if it can't be imported or is not callable.
    """

    def __init__(self, delete_policy: str | None = None) -> None:
        self._policy = None if delete_policy is None else DeletePolicy(delete_policy)

    def __call__(
        self,
        root: str,
        topics: Collection[str],
        configs: Mapping[str, str],
        progress: Callable[[], None] = lambda: None,
        *,
        rolled: bool,
    ) -> None:
        """Never raises, as the records are visible."""
        try:
            own = read_topic_configs(open_folder(root))
            of_topics = {topic: {**own.get(topic, {}), **configs} for topic in topics}
            limited, compacted = self._wanted(of_topics)
            wanted = limited | compacted.keys()
            now = deleting.now_ms()
            checked = _read_checked(root) if wanted else {}
            due = {topic for topic in wanted if rolled or not 0 <= now - checked.get(topic, -1) < CHECK_MS}
            if not due:
                return
            again = self._delete(root, limited & due, configs, progress)
            again |= _compact(root, {t: compacted[t] for t in compacted.keys() & due}, progress)
            found = {**checked, **dict.fromkeys(due, now)}
            _write_checked(root, {topic: at for topic, at in found.items() if topic not in again})
        except Exception as e:
            with suppress(OSError):  # so that the next commit looks again
                os.unlink(os.path.join(root, _CHECKED_FILE))
            _log.warning(
                "Published, but could not apply cleanup.policy in %s; the next commit will try: %s", root, e
            )

    def _wanted(
        self, of_topics: Mapping[str, Mapping[str, str]]
    ) -> tuple[set[str], dict[str, CompactionSettings]]:
        """The topics that may lose segments, and those to compact, by their configurations.

        Others have none that anything is due by, or some that are invalid.
        """
        limited: set[str] = set()
        compacted: dict[str, CompactionSettings] = {}
        for topic, configs in of_topics.items():
            try:
                rules = RetentionRules.of(topic, configs)
                if "compact" in cleanup_policies(configs):
                    compacted[topic] = CompactionSettings.of(configs)
            except (LogDirectoryError, OptionError) as e:
                _log.warning("Published, but could not apply cleanup.policy to topic %s: %s", topic, e)
                continue
            if rules.have_limits or (rules.deletes and self._policy is not None):
                limited.add(topic)
        return limited, compacted

    def _delete(
        self,
        root: str,
        topics: Collection[str],
        configs: Mapping[str, str],
        progress: Callable[[], None],
    ) -> set[str]:
        """Delete what is due in these topics; those of which something could not be used."""
        if not topics:
            return set()
        log_root = LogRoot(open_folder(root))
        with disk_errors("Could not delete records", root):
            planned = deleting.due(topics, configs, self._policy, log_root, deleting.partition_in_order)
        deletions, failures = deleting.carry_out(log_root, planned, progress)
        for deletion in deletions:
            if deletion.segments:
                _log.info(
                    "Deleted %d segments of %s, %d bytes (%s); the log now starts at offset %d",
                    deletion.segments,
                    deletion.partition,
                    deletion.stored_bytes,
                    ", ".join(deletion.reasons),
                    deletion.new_start,
                )
        for partition, error in failures.items():
            _log.warning("Published, but could not apply retention to %s: %s", partition, error)
        return {partition.topic for partition in failures}


def _compact(root: str, settings: Mapping[str, CompactionSettings], progress: Callable[[], None]) -> set[str]:
    """Compact what is due in these topics, as far as there is time: what has begun, then the dirtiest first.

    :return: the topics of which something is left to do.
    """
    if not settings:
        return set()
    limit = TimeLimit(COMPACTION_SECONDS)
    again: set[str] = set()
    for number, partition in enumerate(_dirtiest_first(root, settings, again)):
        if number and limit.is_over():
            again.add(partition.topic)
            continue
        try:
            done, is_all = compact_held(
                root, partition, settings[partition.topic], lambda size: progress(), limit
            )
        except (CorruptRecordError, OversizedRecordError) as e:
            # Brokers give such a log up. It is tried again when a segment has rolled, or in minutes.
            _log.warning("Published, but could not compact %s: %s", partition, e)
            continue
        except LogDirectoryError as e:
            _log.warning("Published, but could not compact %s: %s", partition, e)
            again.add(partition.topic)
            continue
        if not is_all:
            again.add(partition.topic)
        if done.passes:
            _log.info("Compacted %s up to offset %d", partition, done.first_dirty_offset)
    return again


def _dirtiest_first(
    root: str, settings: Mapping[str, CompactionSettings], again: set[str]
) -> list[TopicPartition]:
    """The partitions to compact. Topics of which one can't be looked at are added to ``again``."""
    log_root = LogRoot(open_folder(root))
    found = []
    for partition in log_root.live_partitions():
        if partition.topic not in settings:
            continue
        try:
            with disk_errors("Could not look at the partition", os.path.join(root, str(partition))):
                has_begun = load(os.path.join(root, str(partition))).begun is not None
                cleanable = cleanable_now(log_root, partition, settings[partition.topic])
        except (LogDirectoryError, CorruptRecordError) as e:
            _log.warning("Published, but could not compact %s: %s", partition, e)
            again.add(partition.topic)
            continue
        if has_begun or (cleanable is not None and cleanable.is_due):
            ratio = 0 if cleanable is None else cleanable.ratio
            found.append((not has_begun, -ratio, partition))
    return [partition for *_, partition in sorted(found)]


def _read_checked(root: str) -> dict[str, int]:
    """The time (ms) of the last look at each topic; an unreadable file has none."""
    try:
        content = json.loads(local_folder(root).read(_CHECKED_FILE) or b"{}")
        return {str(topic): int(checked) for topic, checked in content.items()}
    except (OSError, LogDirectoryError, *UNREADABLE):
        return {}


def _write_checked(root: str, checked: Mapping[str, int]) -> None:
    replace(os.path.join(root, _CHECKED_FILE), json.dumps(checked).encode())
