"""Assertions for a token endpoint: JWTs from a file, or signed here (Kafka's DefaultAssertionCreator)."""

from __future__ import annotations

import base64
import json
import time
import uuid
from typing import Any

from pyspark_kafkalog.broker.wire.token_files import content_of
from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.options.security.assertion import FILE, KEY, TEMPLATE, AssertionOptions
from pyspark_kafkalog.options.security.oauth import is_token


def assertion(options: AssertionOptions) -> str:
    """A JWT that is valid now. Its files are read each time, as they may change.

    :raises AuthenticationError: if it can't be made. The error names the option, and no part of a file.
    """
    if options.file is not None:
        text = _read(FILE, options.file).decode("latin-1")
        if not is_token(text):
            raise _wrong(FILE, "expected a file with nothing but a JWT")
        return text
    template = _template(options)
    now = int(time.time())
    claims = {"aud": options.audience, "iss": options.issuer, "sub": options.subject}
    payload = {
        **{name: value for name, value in claims.items() if value is not None},
        **template.get("payload", {}),
        "iat": now,
        "exp": now + options.valid_seconds,
        "nbf": now - options.early_seconds,
        **({"jti": str(uuid.uuid4())} if options.has_id else {}),
    }
    header = {**template.get("header", {}), "alg": options.algorithm, "typ": "JWT"}
    signed = f"{_json(header)}.{_json(payload)}"
    return f"{signed}.{_encoded(_signature(options, signed.encode()))}"


def _template(options: AssertionOptions) -> dict[str, Any]:
    if options.template_file is None:
        return {}
    try:
        template = json.loads(_read(TEMPLATE, options.template_file).decode())
    except (ValueError, RecursionError):
        template = None
    if not isinstance(template, dict) or not all(
        isinstance(template.get(part, {}), dict) for part in ("header", "payload")
    ):
        raise _wrong(TEMPLATE, "expected JSON with the objects header and payload")
    return template


def _signature(options: AssertionOptions, signed: bytes) -> bytes:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
        from cryptography.hazmat.primitives.hashes import SHA256
    except ImportError:
        raise AuthenticationError(
            f"To sign with {KEY} needs the Python package cryptography, on the driver and on each executor",
            hint=f"pip install cryptography, or give a JWT that is ready as {FILE}.",
        ) from None
    assert options.key_file is not None
    text = _read(KEY, options.key_file)
    password = None if options.passphrase is None else options.passphrase.encode()
    try:
        if b"-----BEGIN" in text:
            key = serialization.load_pem_private_key(text, password)
        else:
            key = serialization.load_der_private_key(base64.b64decode(b"".join(text.split())), password)
    except Exception as e:  # of several kinds, whose texts may quote the file
        raise _wrong(KEY, f"expected a private key in PEM, and its passphrase ({type(e).__name__})") from None
    if options.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), SHA256())
    if (
        options.algorithm == "ES256"
        and isinstance(key, ec.EllipticCurvePrivateKey)
        and isinstance(key.curve, ec.SECP256R1)
    ):
        numbers = utils.decode_dss_signature(key.sign(signed, ec.ECDSA(SHA256())))
        return b"".join(number.to_bytes(32, "big") for number in numbers)
    kind = "an RSA key" if options.algorithm == "RS256" else "a key on the curve P-256"
    raise _wrong(KEY, f"expected {kind} for {options.algorithm}")


def _read(option: str, path: str) -> bytes:
    try:
        return content_of(path)
    except ValueError as e:
        raise _wrong(option, str(e)) from None


def _wrong(option: str, reason: str) -> AuthenticationError:
    return AuthenticationError(
        f"The file of the option {option!r} can't be used: {reason}",
        hint="It must be there on the driver and on each executor, for Spark's Python processes to read.",
    )


def _json(fields: dict[str, Any]) -> str:
    return _encoded(json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode())


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
