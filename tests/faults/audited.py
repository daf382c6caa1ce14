"""Writes batches and reads them in a group, both audited, and dies at a chosen moment: see
:mod:`tests.faults.steps`.

The folder has ``plan.json``: the ``options`` of the place, the ``topic``, the options ``audit`` and
``write``, how many ``rows`` a batch has, and how many ``batches`` there are. The file ``done`` has the number
of those that are complete. A positive step is a change of the audit, before or after which the process dies;
a negative one the milliseconds after which it does.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas  # noqa: F401 - pyarrow imports it with the first array, which each fork would pay for
import pyarrow as pa

import pyspark_kafkalog.extensions.audit.topic
import pyspark_kafkalog.extensions.exactly_once.committing  # noqa: F401
from pyspark_kafkalog import AuditedRecord, CountingAuditor, connect
from pyspark_kafkalog.extensions.audit.stores import FolderStore
from pyspark_kafkalog.extensions.audit.topic import TopicStore
from tests.faults.steps import serve

TENANTS = 5
BUCKET_MS = 1000
FIRST_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class ByTenant(CountingAuditor):
    """Counts messages by a header, one by one."""

    columns = ("headers",)

    def audit_key(self, record: AuditedRecord) -> str | None:
        return next((value.decode() for name, value in record.headers if name == "tenant" and value), None)


class ByTenantInArrow(CountingAuditor):
    """Counts messages by the first byte of their keys, all at once."""

    columns = ("key",)

    def audit_keys(self, partition: object, records: pa.RecordBatch) -> pa.Array:
        return pa.compute.binary_slice(records.column("key"), 0, 1).cast(pa.string())


def rows(batch: int, count: int) -> pa.RecordBatch:
    """The rows of a batch, the same each time: keys that begin with a tenant, and headers that name it."""
    numbers = np.arange(batch * count, (batch + 1) * count)
    tenants = [b"%d" % (number % TENANTS) for number in numbers.tolist()]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"%b-%d" % pair for pair in zip(tenants, numbers.tolist(), strict=True)]),
            "value": pa.array([b"x" * (number % 50) for number in numbers.tolist()]),
            "headers": pa.array([[("tenant", tenant)] for tenant in tenants], HEADERS),
            "timestamp": pa.array((FIRST_MS + numbers // 10) * 1000).cast(pa.timestamp("us", tz="UTC")),
        }
    )


def die_at(step: int) -> None:
    """Let this process die before or after a change of the audit."""
    changes = 0

    def dying(put: Callable[..., None]) -> Callable[..., None]:
        def put_or_die(*given: Any) -> None:
            nonlocal changes
            changes += 1
            if 2 * changes - 1 == step:
                os.kill(os.getpid(), signal.SIGKILL)
            put(*given)
            if 2 * changes == step:
                os.kill(os.getpid(), signal.SIGKILL)

        return put_or_die

    for store in FolderStore, TopicStore:
        store.put = dying(store.put)  # type: ignore[attr-defined, method-assign]


def run(folder: Path, step: int) -> None:
    if step > 0:
        die_at(step)
    elif step < 0:
        signal.setitimer(signal.ITIMER_REAL, -step / 1000)
    plan, done = json.loads((folder / "plan.json").read_text()), folder / "done"
    kafka, audit = connect(plan["options"]), plan["audit"]
    numbered = {"txnAppId": f"app-{plan['topic']}", **audit, **plan["write"]}
    for batch in range(int(done.read_text()) if done.exists() else 0, plan["batches"]):
        found = [rows(batch, plan["rows"])]
        kafka.write(found, plan["topic"], options={**numbered, "txnVersion": str(batch)})
        (folder / "done.new").write_text(str(batch + 1))
        (folder / "done.new").replace(done)
    columns = ["key", "value", "timestamp"]
    with kafka.changes(plan["topic"], group="auditors", columns=columns, options=audit) as changes:
        changes.read().read_all()


if __name__ == "__main__":
    serve(run)
