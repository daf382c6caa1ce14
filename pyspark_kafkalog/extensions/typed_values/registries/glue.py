"""Schemas of the AWS Glue Schema Registry, by botocore: the extra ``[aws]``.

Names are those of the properties of awslabs' serializers. A subject is a schema of Glue's, which they name
after the topic; its versions have ids.
"""

from __future__ import annotations

import http.client
import io
import re
import ssl
import time
import urllib.error
import urllib.request
import uuid
from dataclasses import replace
from typing import Any

from pyspark_kafkalog.errors import SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.registries.contract import Key
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import (
    LARGEST_ANSWER,
    SHORTEST_WAIT,
    WAIT,
    AgainError,
    PatientRegistry,
    RegisteredSchema,
    UnknownError,
)
from pyspark_kafkalog.named_origin import opener, reason_of
from pyspark_kafkalog.sdk_logs import silent

KINDS = ("AVRO", "JSON", "PROTOBUF")
_SECONDS = 10.0
"""The time that a request may take."""
_PAUSE = 0.1
_UNKNOWN, _REFUSED = "EntityNotFoundException", "InvalidInputException"
_KNOWN = "AlreadyExistsException"
_EXISTS: dict[str, Any] = {}
"""The answer if another has created a schema meanwhile."""
_AGAIN = re.compile("Throttl|TooManyRequests|LimitExceeded|Timeout|ConcurrentModification|ServiceUnavailable")
"""Parts of the codes of errors that may end by themselves."""
_CODE = re.compile("[A-Za-z]{1,60}")
_PENDING, _AVAILABLE = "PENDING", "AVAILABLE"
_LONGEST_WORDS = 1000


class GlueRegistry(PatientRegistry):
    """A registry of AWS Glue's; credentials are those that botocore finds."""

    def __init__(self, options: RegistryOptions) -> None:
        super().__init__()
        self._options = options
        self._found: dict[uuid.UUID, RegisteredSchema] = {}
        self._made: Any = None
        self._context: ssl.SSLContext | None = None
        self._deadline = 0.0
        """Time at which the request that is being sent has to end."""

    def by_key(self, key: Key, *, wait: float = WAIT) -> RegisteredSchema:
        """See :meth:`.contract.SchemaSource.by_key`; it may become known while this waits."""
        assert isinstance(key, uuid.UUID), "Glue's ids are such"
        found = self._found.get(key)
        if found is None:
            what, deadline = f"schema version {key}", time.monotonic() + wait
            answer = self._patiently(
                lambda: self._version(what, deadline, {"SchemaVersionId": str(key)}),
                what,
                deadline,
                waits_for_it=True,
            )
            found = self._found[key] = self._schema(answer, what)
        return found

    def knows(self, key: Key) -> bool:
        """See :meth:`.contract.SchemaSource.knows`."""
        what, deadline = f"schema version {key}", time.monotonic() + WAIT
        if key in self._found:
            return True
        return bool(self._call("get_schema_version", what, deadline, SchemaVersionId=str(key)))

    def latest(self, subject: str) -> RegisteredSchema:
        """See :meth:`.contract.SchemaSource.latest`."""
        what, asked = f"schema {subject!r}", {"LatestVersion": True}
        answer = self._call("get_schema_version", what, SchemaId=self._id(subject), SchemaVersionNumber=asked)
        if answer is None or answer.get("Status", _AVAILABLE) != _AVAILABLE:
            raise self._unknown(what)
        return self._schema(answer, what)

    def find(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """See :meth:`.contract.SchemaSource.find`."""
        what = f"this schema among the versions of {subject!r}"
        found = self._registered(subject, schema, what)
        if found is None:
            raise self._unknown(what)
        return found

    def register(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """See :meth:`.contract.SchemaSource.register`; a schema that does not exist is created."""
        what = f"this schema as a version of {subject!r}"
        found = self._registered(subject, schema, what)
        if found is not None:
            return found
        given: dict[str, Any] = {"SchemaId": self._id(subject), "SchemaDefinition": schema.text}
        answer = self._call("register_schema_version", what, **given)
        if answer is None:
            answer = self._call(
                "create_schema",
                what,
                RegistryId={"RegistryName": self._options.name},
                SchemaName=subject,
                DataFormat=schema.kind,
                Compatibility=self._options.compatibility,
                SchemaDefinition=schema.text,
            )
            if answer is _EXISTS:
                answer = self._call("register_schema_version", what, **given)
        if answer is None:
            raise self._error(f"has no registry {self._options.name!r}", "Create it, or name another one.")
        key = self._key(answer, what)
        status = answer.get("Status") or answer.get("SchemaVersionStatus")
        deadline = time.monotonic() + WAIT
        while status == _PENDING and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            version = self._call("get_schema_version", what, SchemaVersionId=str(key))
            status = None if version is None else version.get("Status")
        if status != _AVAILABLE:
            raise self._error(
                f"refuses {what}: its status is {str(status)[:100]}",
                "Change the columns, or the compatibility of the schema.",
            )
        return replace(schema, guid=key)

    def _registered(self, subject: str, schema: RegisteredSchema, what: str) -> RegisteredSchema | None:
        """A schema among the versions of another; None if it isn't one of them."""
        answer = self._call(
            "get_schema_by_definition", what, SchemaId=self._id(subject), SchemaDefinition=schema.text
        )
        if answer is None or answer.get("Status") != _AVAILABLE:
            return None
        return replace(schema, guid=self._key(answer, what))

    def _schema(self, answer: dict[str, Any], what: str) -> RegisteredSchema:
        text, kind = answer.get("SchemaDefinition"), answer.get("DataFormat", "AVRO")
        if not isinstance(text, str):
            raise self._error(f"gave an answer without a schema for {what}")
        return RegisteredSchema(text, kind if kind in KINDS else "", guid=self._key(answer, what))

    def _key(self, answer: dict[str, Any], what: str) -> uuid.UUID:
        try:
            return uuid.UUID(answer["SchemaVersionId"])
        except (KeyError, ValueError, TypeError, AttributeError):
            raise self._error(f"gave an answer without an id for {what}") from None

    def _id(self, subject: str) -> dict[str, str]:
        return {"RegistryName": self._options.name, "SchemaName": subject}

    def _call(
        self, method: str, what: str, deadline: float | None = None, **given: Any
    ) -> dict[str, Any] | None:
        """The answer to a call; None if Glue has no such thing, :data:`_EXISTS` if it is there already.

        :param deadline: that of a query's plan if it is None.
        :raises SchemaRegistryError: for any other error.
        """
        if deadline is None:
            deadline = self._of_plan(time.monotonic() + WAIT)
        try:
            return self._patiently(
                lambda: self._sent(method, what, deadline, given), what, deadline, waits_for_it=False
            )
        except UnknownError:
            return None

    def _version(self, what: str, deadline: float, given: dict[str, Any]) -> dict[str, Any]:
        """A version of a schema that is available.

        :raises UnknownError: if there is none now.
        """
        answer = self._sent("get_schema_version", what, deadline, given)
        if answer.get("Status", _AVAILABLE) != _AVAILABLE:
            raise UnknownError
        return answer

    def _sent(self, method: str, what: str, deadline: float, given: dict[str, Any]) -> dict[str, Any]:
        """The answer to one call.

        :raises UnknownError: if Glue has no such thing.
        :raises AgainError: if it may answer later.
        :raises SchemaRegistryError: for any other error.
        """
        with silent("botocore", "urllib3"):
            client = self._client()
            from botocore.exceptions import BotoCoreError, ClientError

            self._deadline = deadline
            try:
                found: dict[str, Any] = getattr(client, method)(**given)
            except ClientError as e:
                error = e.response.get("Error", {})
                status = e.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
                named = _CODE.fullmatch(str(error.get("Code")))
                code = f"HTTP status {status}" if named is None else named[0]
                if code == _UNKNOWN:
                    raise UnknownError from None
                if code == _KNOWN:
                    return _EXISTS
                if code == _REFUSED:
                    words = " ".join(str(error.get("Message")).split())[:_LONGEST_WORDS]
                    raise self._error(f"refuses {what}: {words}") from None
                if status == 429 or status >= 500 or _AGAIN.search(code):
                    raise AgainError(code) from None
                hint = "Check the credentials, and what they allow in Glue."
                raise self._error(f"gave no answer for {what}: {code}", hint) from None
            except BotoCoreError as e:
                raise self._error(
                    f"gave no answer for {what}: {type(e).__name__}",
                    "Check the region, and that botocore finds credentials there: Spark's workers have the"
                    " environment that its JVM began with.",
                ) from None
            except (OSError, http.client.HTTPException) as e:
                raise AgainError(reason_of(e)) from None
        return found

    def _send(self, request: Any, **_: Any) -> Any:
        """The answer to a request that botocore has signed, within bounds of time and bytes: it has none."""
        from botocore.awsrequest import AWSResponse

        sent = urllib.request.Request(request.url, request.body, dict(request.headers), method=request.method)
        connecting = min(_SECONDS, max(self._deadline - time.monotonic(), SHORTEST_WAIT))
        sender = opener(time.monotonic() + connecting + _SECONDS, self._context, connecting=connecting)
        try:
            answer = sender.open(sent, timeout=_SECONDS)
        except urllib.error.HTTPError as e:
            answer = e
        with answer:
            self._has_answered = True
            content = answer.read(LARGEST_ANSWER + 1)
        if len(content) > LARGEST_ANSWER:
            raise self._error(f"gave more than {LARGEST_ANSWER} bytes")
        return AWSResponse(request.url, answer.status, answer.headers, _Content(content))

    def _client(self) -> Any:
        if self._made is None:
            try:
                from botocore.config import Config
                from botocore.exceptions import BotoCoreError
                from botocore.httpsession import get_cert_path
                from botocore.session import Session
            except ImportError:
                raise SchemaRegistryError(
                    "AWS Glue is asked by botocore, which is not installed",
                    hint="pip install 'pyspark-kafkalog[aws]', on the driver and all workers.",
                ) from None
            options, session = self._options, Session()
            once = Config(retries={"total_max_attempts": 1, "mode": "standard"})
            try:
                made = session.create_client(
                    "glue", region_name=options.region, endpoint_url=options.endpoint, config=once
                )
                if made.meta.endpoint_url.startswith("https:"):
                    bundle = session.get_config_variable("ca_bundle") or True
                    self._context = ssl.create_default_context(cafile=get_cert_path(bundle))
            except (BotoCoreError, ValueError, OSError) as e:  # for no URL, and for no file
                hint = "Check the options region and endpoint, and what botocore is configured by."
                raise self._error(f"can't be reached: {type(e).__name__}", hint) from None
            made.meta.events.register("before-send.glue", self._send)
            self._made = made
        return self._made

    @property
    def _unknown_hint(self) -> str:
        return "Check the region and the name of the registry, and that of the schema."

    @property
    def _silent_hint(self) -> str:
        return "Check the options region and endpoint, and that Glue can be reached from here."

    def _unknown(self, what: str) -> SchemaRegistryError:
        return self._error(f"does not know {what}", self._unknown_hint)

    def _error(self, did: str, hint: str | None = None) -> SchemaRegistryError:
        return SchemaRegistryError(f"The Glue registry {self._options.name!r} {did}", hint=hint)


class _Content(io.BytesIO):
    """The bytes of an answer, as botocore reads them."""

    def stream(self) -> list[bytes]:
        return [self.getvalue()]
