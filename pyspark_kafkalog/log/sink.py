"""A log directory as a sink: tasks stage, and the driver's commit publishes.

See :class:`pyspark_kafkalog.model.sinks.Sink`. Imports happen on first use, as many short-lived
processes make one.
"""

from __future__ import annotations

import logging
import os
import platform
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol

from pyspark_kafkalog import extensions
from pyspark_kafkalog.errors import OptionError, numbered
from pyspark_kafkalog.filesystem.durable import disk_errors
from pyspark_kafkalog.filesystem.machine import Mark, is_marked_by, leave_mark
from pyspark_kafkalog.garbage import loading
from pyspark_kafkalog.log.layout import TOPIC_CONFIGS_FILE
from pyspark_kafkalog.log.lock import check_unlocked
from pyspark_kafkalog.model import EncodeSettings, Plan, QueryBatch, TaskAttempt
from pyspark_kafkalog.options.user_options import log_once

if TYPE_CHECKING:
    from pyspark_kafkalog.log.publish.publish import Published
    from pyspark_kafkalog.model import TopicPartition
    from pyspark_kafkalog.model.listening import WriteListener
    from pyspark_kafkalog.staging import Staged, Staging

_log = logging.getLogger("pyspark_kafkalog")


class CleanUp(Protocol):
    """Deletes what is due in topics that a commit has written, and compacts those that are to be.

    Never raises: their records are visible. It takes a limited time.
    """

    def __call__(
        self,
        root: str,
        topics: Collection[str],
        configs: Mapping[str, str],
        progress: Callable[[], None],
        *,
        rolled: bool,
    ) -> None:
        """The caller holds the directory's lock.

        :param configs: of all topics; they take precedence over their own.
        :param progress: called now and then.
        :param rolled: whether a segment has begun.
        """


@dataclass(frozen=True, slots=True)
class DirectorySink:
    """Shows the rows of a batch all at once, and those of a micro-batch once, however often Spark replays it.

    :param num_partitions: the partitions of a topic that does not exist yet.
    :param driver: what the driver has left in the root.
    :param configs: options that were given under the names of topics' configurations: what they mean beside
        those of the topics says :mod:`.topic_settings`.
    :param delete_policy: the import path of a function that names segments to delete.
    :param is_job: whether a job numbers the batches, rather than Spark.
    :param required: whether a micro-batch needs proof of what was published before it.
    """

    needs_commit = True

    root: str
    num_partitions: int
    encode: EncodeSettings
    driver: Mark
    configs: Mapping[str, str] = field(default_factory=dict)
    is_job: bool = False
    required: bool = True
    delete_policy: str | None = None

    @classmethod
    def on_driver(
        cls,
        root: str,
        num_partitions: int,
        encode: EncodeSettings,
        configs: Mapping[str, str],
        *,
        is_job: bool,
        required: bool,
        checkpoint_location: str | None = None,
        delete_policy: str | None = None,
    ) -> DirectorySink:
        """The sink of this driver. The root is made if it does not exist.

        :raises OptionError: if the checkpoint is in it, or the delete policy can't be imported.
        :raises LogDirectoryLockedError: if a broker runs on the directory.
        :raises LogDirectoryError: if it can't be written to, or holds something else than partitions.
        """
        if checkpoint_location is not None:
            from pyspark_kafkalog.filesystem.hadoop import check_outside

            check_outside([root], checkpoint_location)
        if delete_policy is not None:
            extensions.commit_cleanup(delete_policy)
        check_unlocked(root)
        with disk_errors("Could not write to the log directory", root):
            os.makedirs(root, exist_ok=True)
            mark = leave_mark(root)
        return cls(root, num_partitions, encode, mark, configs, is_job, required, delete_policy)

    def open(self, batch: QueryBatch, attempt: TaskAttempt, listener: WriteListener | None = None) -> Staging:
        """See :meth:`pyspark_kafkalog.model.sinks.Sink.open`.

        :raises OptionError: if this task and the driver share no folder; nothing is made in this one.
        :raises LogDirectoryError: if the folder can't be looked at.
        """
        with disk_errors("Could not write to the log directory", self.root):
            is_shared = is_marked_by(self.root, self.driver)
        if not is_shared:
            raise OptionError(
                f"Tasks run on {platform.node()}, which does not share the log directory with the driver",
                hint="Give a folder that the driver and all workers see under the same path and can write to,"
                " such as a mounted one.",
            )
        with loading():
            from pyspark_kafkalog.log.publish.staged_files import KnownTopics, staging

        existing, own = _known_topics(self.root, batch.job, attempt.stage)
        topics = KnownTopics(existing, self.num_partitions, self.encode, own, self.configs)
        return staging(self.root, batch.job, f"{attempt.task:05d}.{attempt.attempt}", topics, listener)

    def commit(
        self,
        batch: QueryBatch,
        finished: Sequence[Staged],
        plan: Plan,
        listener: WriteListener | None = None,
    ) -> bool:
        """Publish what all tasks have staged, unless the batch was published before; then clean up.

        A listener hears once of all record batches of a partition, with the offset of the first record.
        """
        with loading():
            from pyspark_kafkalog.log.publish.ledger import Provenance
            from pyspark_kafkalog.log.publish.publish import publish

        _known_topics.cache_clear()
        staged = [task for task in finished if task.sections]
        self._warn_of_existing(staged)
        history = Provenance(plan, self.is_job, self.required)
        published = publish(
            self.root,
            staged,
            batch,
            self.configs,
            num_partitions=self.num_partitions,
            history=history,
            tombstones=partial(extensions.commit_tombstones, self.root),
            then=self._cleanup(),
        )
        if listener is not None:
            _tell(listener, staged, published)
        if published.skipped and self.is_job:
            from pyspark_kafkalog.model.sinks import JOB_SKIPPED

            _log.warning(JOB_SKIPPED, batch.batch_id)
        return not published.skipped

    def _warn_of_existing(self, staged: Sequence[Staged]) -> None:
        """Say where a number of partitions that was given has no effect; 1 may be the default."""
        if self.num_partitions == 1:
            return
        with loading():
            from pyspark_kafkalog.log.publish.existing import TopicPartitions

        existing = TopicPartitions(self.root)
        topics = {section.topic_partition.topic for task in staged for section in task.sections}
        for topic in sorted(topics):
            count = len(existing.of(topic))
            if count and count != self.num_partitions:
                log_once(
                    logging.WARNING,
                    "Topic %s keeps its %s: numPartitions=%s is for topics that the write creates."
                    " To add partitions: kafkalog topics alter --partitions",
                    topic,
                    numbered(count),
                    self.num_partitions,
                )

    def _cleanup(self) -> Callable[[Published, Callable[[], None]], None]:
        """The cleanup that follows a commit. It is loaded here: nothing may fail once records are visible."""
        has_configs = self.configs or os.path.exists(os.path.join(self.root, TOPIC_CONFIGS_FILE))
        if not has_configs and self.delete_policy is None:
            return lambda *_: None
        with loading():
            clean_up = extensions.commit_cleanup(self.delete_policy)

        def then(published: Published, progress: Callable[[], None]) -> None:
            topics = {partition.topic for partition in published.offsets}
            clean_up(self.root, topics, self.configs, progress, rolled=published.rolled)

        return then

    def abort(self, batch: QueryBatch, finished: Sequence[Staged]) -> None:
        """Remove the staged files. Failed tasks have removed their own."""
        from pyspark_kafkalog.log.publish.staged_files import abort

        _known_topics.cache_clear()
        abort(self.root, batch, finished)


def _tell(listener: WriteListener, staged: Sequence[Staged], published: Published) -> None:
    from pyspark_kafkalog.model.listening import EncodedBatch

    sizes: Counter[TopicPartition] = Counter()
    for section in (section for task in staged for section in task.sections):
        sizes[section.topic_partition] += section.size
    for partition, (start, end) in sorted(published.offsets.items()):
        size = sizes[partition]
        listener.acknowledged(EncodedBatch(partition, 0, end - start, size, size, 1), start, -1)


@lru_cache(maxsize=1)
def _known_topics(
    root: str, job: str, stage: int
) -> tuple[Callable[[str], Collection[int]], Mapping[str, Mapping[str, str]]]:
    """The topics of a log directory: the partitions of each, and their configurations.

    All tasks of a stage see what the first one saw, of each topic.
    """
    with loading():
        from pyspark_kafkalog.filesystem.locate import open_folder
        from pyspark_kafkalog.log.publish.existing import TopicPartitions
        from pyspark_kafkalog.log.topic_configs import read_topic_configs

    if not os.path.isdir(root):
        return lambda _: (), {}
    return TopicPartitions(root).of, read_topic_configs(open_folder(root))
