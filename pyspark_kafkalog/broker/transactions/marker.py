"""What says that a batch was committed: the marker in the cluster, and what a query expects of it.

The marker is the offset that the group named like the transactional id has committed for partition 0 of one
topic: the batch id + 1, with details as metadata. It is committed in the batch's own transaction, so it is
there if and only if the rows are. Beside the checkpoint stands the intent: that this query writes here, since
which batch. Without it nobody could tell a first batch from one whose marker the cluster has lost.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace

from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.model import CommittedOffset

PREFIX = "kafkalog-"
"""Begins every transactional id and marker's group, for the cluster's ACLs."""
_INTENT = "intent.json"
_LONGEST_ATTEMPT_MS = 24 * 3600 * 1000
"""How long a first batch may be tried: a marker outlives that (offsets.retention.minutes: 7 days)."""
_WRITE_IT = (
    "Set failOnMissingMarker to false for one run, which writes the batch whether it was written or not."
)


def transactional_id(query_id: str) -> str:
    """The transactional id of a query, and the name of its marker's group: the same for all of its runs."""
    digest = hashlib.sha256(query_id.encode()).digest()
    return PREFIX + base64.b32encode(digest).decode().lower()[:26]


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch that a query has committed to a cluster."""

    query_id: str
    cluster_id: str | None
    batch_id: int
    records: int = 0

    def as_offset(self) -> CommittedOffset:
        """The marker as its group commits it."""
        details = {"query": self.query_id, "cluster": self.cluster_id, "records": self.records}
        return CommittedOffset(self.batch_id + 1, metadata=json.dumps(details))

    @classmethod
    def of(cls, offset: CommittedOffset, group: str) -> Marker:
        """The marker in an offset.

        :raises TransactionError: if this package did not write it.
        """
        try:
            details = json.loads(offset.metadata)
            query_id, cluster_id = details["query"], details["cluster"]
            records = int(details["records"])
        except (ValueError, TypeError, KeyError):
            raise TransactionError(
                f"The offset of group {group} is not a marker of this package",
                hint="Something else commits to that group. Find it, and let it use another group.",
            ) from None
        return cls(query_id, cluster_id, offset.offset - 1, records)


@dataclass(frozen=True, slots=True)
class Intent:
    """That a query writes to a cluster, exactly once, since ``first_batch``.

    ``topic`` has the marker. ``since_ms`` is when it was stored, by this machine's clock, and ``confirmed``
    whether the first batch is known to be committed.
    """

    query_id: str
    cluster_id: str | None
    topic: str
    first_batch: int
    since_ms: int
    confirmed: bool = False


def stored_intent(folder: Folder) -> Intent | None:
    """The intent in a query's folder; None if there is none.

    :raises TransactionError: if it can't be parsed.
    """
    data = folder.read_replaced(_INTENT)
    if data is None:
        return None
    try:
        return Intent(**json.loads(data))
    except (ValueError, TypeError):
        raise TransactionError(
            "What the query keeps about its writes is corrupt",
            file=folder.label(_INTENT),
            hint="Delete the file. If the query's marker is missing, too, the next batch is written again.",
        ) from None


def store_intent(folder: Folder, intent: Intent) -> None:
    """Store the intent, before the first transaction begins."""
    folder.replace(_INTENT, json.dumps(asdict(intent)).encode())


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a run of a batch expects of the marker.

    :param intent: stored before, or None for a query that has written nothing here yet.
    :param required: whether a missing marker is an error, unless it can't be there yet.
    """

    query_id: str
    cluster_id: str | None
    batch_id: int
    intent: Intent | None
    required: bool = True

    def is_met_by(self, marker: Marker | None) -> bool:
        """Whether the batch was committed before; if not, it may be written now.

        :raises TransactionError: if the marker is another's, is ahead, or is missing.
        """
        if self.intent is not None:
            self._check_cluster(self.intent.cluster_id)
        if marker is None:
            self._check_missing()
            return False
        if marker.query_id != self.query_id:
            raise TransactionError(
                f"Another query has committed to this one's marker: expected {self.query_id},"
                f" got {marker.query_id}",
                hint="Give each query its own checkpoint, and each job its own txnAppId.",
            )
        self._check_cluster(marker.cluster_id)
        if marker.batch_id > self.batch_id:
            raise TransactionError(
                f"The cluster has batch {marker.batch_id} of this query already, but batch {self.batch_id}"
                " is to be written",
                hint="Another run of the query is ahead of this one, or the checkpoint was set back: then"
                " rows would be lost or doubled. Use a new checkpoint.",
            )
        return marker.batch_id == self.batch_id

    def _check_cluster(self, known: str | None) -> None:
        if known != self.cluster_id:
            raise TransactionError(
                "The query has written to another cluster: expected cluster id"
                f" {known}, got {self.cluster_id}",
                hint="Use a new checkpoint for another cluster.",
            )

    def _check_missing(self) -> None:
        intent = self.intent
        if intent is None or not self.required:
            return
        if intent.confirmed or intent.first_batch != self.batch_id:
            raise TransactionError(
                f"The marker of this query is missing, so batch {self.batch_id} may have been written or not",
                hint="The cluster has lost it (offsets.retention.minutes without a batch, the deletion of"
                f" topic {intent.topic} or of the marker's group). {_WRITE_IT}",
            )
        age = time.time_ns() // 1_000_000 - intent.since_ms
        if age > _LONGEST_ATTEMPT_MS:
            raise TransactionError(
                f"The first batch of this query was tried {age // 3_600_000} hours ago, and no marker says"
                " how it ended",
                hint=f"If it was written, its marker may have expired. {_WRITE_IT}",
            )

    def new_intent(self, topic: str) -> Intent:
        """The intent of a query that begins here."""
        now = time.time_ns() // 1_000_000
        return Intent(self.query_id, self.cluster_id, topic, self.batch_id, now)


def confirmed(intent: Intent) -> Intent:
    """The intent once a batch is known to be committed."""
    return replace(intent, confirmed=True)
