from __future__ import annotations

import sys
import zlib

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.codec.checksums import crc32, crc32c, crcmod_crc32c, fastest_crc32c

CHECK = b"123456789"


def test_check_values_of_the_polynomials() -> None:
    assert crc32c(CHECK) == 0xE3069283
    assert crc32(CHECK) == 0xCBF43926


@given(st.binary(max_size=200))
def test_both_implementations_of_crc32c_agree(data: bytes) -> None:
    array = np.frombuffer(data, np.uint8)
    assert crc32c(array) == google_crc32c.value(data) == crcmod_crc32c()(array)
    assert crc32(array) == zlib.crc32(data)


@pytest.mark.parametrize("lacking", ["the package", "its C build"])
def test_crcmod_stands_in_for_google_crc32c(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacking == "the package":
        monkeypatch.setitem(sys.modules, "google_crc32c", None)
    else:
        monkeypatch.setattr(google_crc32c, "implementation", "python")
        monkeypatch.setattr(google_crc32c, "value", None)
    assert fastest_crc32c()(CHECK) == 0xE3069283
