"""A plugin of pytest: the package computes CRC-32C as where google-crc32c has no build.

Tests still have that library, which says what is right.
"""

from __future__ import annotations

import sys

assert "pyspark_kafkalog" not in sys.modules, "it has chosen already"
sys.modules["google_crc32c"] = None  # type: ignore[assignment]

from pyspark_kafkalog.codec import checksums  # noqa: E402

del sys.modules["google_crc32c"]
assert "google" not in checksums.crc32c.__module__, "this is not crcmod's"
