"""Certificates and keys in options."""

from __future__ import annotations

import base64
import ssl

import pytest
import trustme

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.pem import certificates, private_key

BODY = base64.b64encode(bytes(range(256))).decode()
CERTIFICATE = f"-----BEGIN CERTIFICATE-----\n{BODY}\n-----END CERTIFICATE-----\n"
KEY = f"-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----\n"


def test_lines_are_as_openssl_wants_them() -> None:
    text = certificates("o", f"Bag Attributes\n  name: x\n{CERTIFICATE} between {CERTIFICATE}")
    lines = text.splitlines()
    assert lines[0] == "-----BEGIN CERTIFICATE-----"
    assert {len(line) for line in lines[1:6]} == {64}
    assert "".join(lines[1:7]) == BODY
    assert text.count("BEGIN") == 2


@pytest.mark.parametrize("newline", [" ", "\\n", "\r\n", "\\r\\n", "\n   "])
def test_lines_may_have_ended_otherwise(newline: str) -> None:
    authority = trustme.CA().cert_pem.bytes().decode()
    text = certificates("o", authority.strip().replace("\n", newline))
    assert text == authority.replace("\r", "")
    ssl.create_default_context(cadata=text)


@pytest.mark.parametrize(
    "kind", ["PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"]
)
def test_keys(kind: str) -> None:
    text = private_key("o", CERTIFICATE + KEY.replace("PRIVATE KEY", kind))
    assert text.startswith(f"-----BEGIN {kind}-----\n")
    assert "CERTIFICATE" not in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a PEM block of type PRIVATE KEY"),
        ("secret", "expected a PEM block"),
        (CERTIFICATE, "expected a PEM block"),
        (KEY.replace("END PRIVATE", "END RSA PRIVATE"), "expected a PEM block"),
        (KEY.replace("AAEC", "secr*t"), "expected base64"),
        (KEY.replace(BODY, "secret"[:5]), "expected base64"),
        (KEY + KEY, "expected one private key, got 2"),
        (KEY.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\n\n", 1), "openssl pkcs8 -topk8"),
    ],
)
def test_other_texts_are_refused_and_not_shown(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"'o'.*{message}") as caught:
        private_key("o", text)
    assert BODY[:6] not in str(caught.value)
    assert "secr" not in str(caught.value)
