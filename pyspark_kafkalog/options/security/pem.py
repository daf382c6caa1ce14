"""PEM in options, parsed like Kafka's PemParser and rewritten for OpenSSL.

Text from a properties file may have spaces, or a literal ``\\n``, in place of line
breaks, but OpenSSL needs lines. Errors show nothing of the text.
"""

from __future__ import annotations

import base64
import binascii
import re

from pyspark_kafkalog.errors import OptionError

_BLOCK = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]{1,40})-----(?P<body>[^-]*(?:-(?!----)[^-]*)*)-----END (?P=label)-----"
)
_LINE_WIDTH = 64


def certificates(option: str, text: str) -> str:
    """The certificates in a PEM text.

    :raises OptionError: naming ``option``, if there are none.
    """
    return "".join(_blocks(option, text, "CERTIFICATE"))


def private_key(option: str, text: str) -> str:
    """The one private key in a PEM text."""
    found = _blocks(option, text, "PRIVATE KEY")
    if len(found) != 1:
        raise OptionError(f"Option {option!r}: expected one private key, got {len(found)}")
    return found[0]


def _blocks(option: str, text: str, kind: str) -> list[str]:
    found = []
    for match in _BLOCK.finditer(text.replace("\\r", "").replace("\\n", "\n")):
        if match["label"].endswith(kind):
            found.append(_block(option, match["label"], match["body"]))
    if not found:
        raise OptionError(
            f"Option {option!r}: expected a PEM block of type {kind}",
            hint=f"It begins with -----BEGIN {kind}----- and ends with -----END {kind}-----.",
        )
    return found


def _block(option: str, label: str, body: str) -> str:
    if ":" in body:
        raise OptionError(
            f"Option {option!r}: expected a PEM block without headers, which old encrypted keys have",
            hint="Convert the key with: openssl pkcs8 -topk8 -in key.pem -out key8.pem",
        )
    digits = "".join(body.split())
    try:
        base64.b64decode(digits, validate=True)
    except binascii.Error:
        raise OptionError(f"Option {option!r}: expected base64 in its PEM block") from None
    lines = [digits[start : start + _LINE_WIDTH] for start in range(0, len(digits), _LINE_WIDTH)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])
