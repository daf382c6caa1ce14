"""Schemas of the AWS Glue Schema Registry, by botocore: the extra ``[aws]``.

Names are those of the properties of awslabs' serializers. A subject is a schema of Glue's, which they name
after the topic; its versions have ids.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Any

from pyspark_kafkalog.errors import SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.registries.contract import Key
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import WAIT, RegisteredSchema

KINDS = ("AVRO", "JSON", "PROTOBUF")
_SECONDS, _ATTEMPTS = 10.0, 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_UNKNOWN = "EntityNotFoundException"
_PENDING, _AVAILABLE = "PENDING", "AVAILABLE"
_LONGEST_WORDS = 1000


class GlueRegistry:
    """A registry of AWS Glue's; credentials are those that botocore finds."""

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._found: dict[uuid.UUID, RegisteredSchema] = {}
        self._made: Any = None

    def by_key(self, key: Key, *, wait: float = WAIT) -> RegisteredSchema:
        """See :meth:`.contract.SchemaSource.by_key`; it may become known while this waits."""
        assert isinstance(key, uuid.UUID), "Glue's ids are such"
        found = self._found.get(key)
        if found is None:
            what = f"schema version {key}"
            answer = self._version(what, time.monotonic() + wait, SchemaVersionId=str(key))
            found = self._found[key] = self._schema(answer, what)
        return found

    def knows(self, key: Key) -> bool:
        """See :meth:`.contract.SchemaSource.knows`."""
        what = f"schema version {key}"
        return (
            key in self._found or self._call("get_schema_version", what, SchemaVersionId=str(key)) is not None
        )

    def latest(self, subject: str) -> RegisteredSchema:
        """See :meth:`.contract.SchemaSource.latest`."""
        what = f"schema {subject!r}"
        answer = self._version(
            what, time.monotonic(), SchemaId=self._id(subject), SchemaVersionNumber={"LatestVersion": True}
        )
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
        answer = self._call(
            "register_schema_version", what, SchemaId=self._id(subject), SchemaDefinition=schema.text
        )
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
        if answer is None:
            raise self._error(f"has no registry {self._options.name!r}", "Create it, or name another one.")
        key = self._key(answer, what)
        status = answer.get("Status") or answer.get("SchemaVersionStatus")
        deadline = time.monotonic() + WAIT
        while status == _PENDING and time.monotonic() < deadline:
            time.sleep(_FIRST_PAUSE)
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

    def _version(self, what: str, deadline: float, **asked: Any) -> dict[str, Any]:
        """A version of a schema, which is asked for again until the deadline.

        :raises SchemaRegistryError: if there is none by then.
        """
        pause = _FIRST_PAUSE
        while True:
            answer = self._call("get_schema_version", what, **asked)
            if answer is not None and answer.get("Status", _AVAILABLE) == _AVAILABLE:
                return answer
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._unknown(what)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _schema(self, answer: dict[str, Any], what: str) -> RegisteredSchema:
        text, kind = answer.get("SchemaDefinition"), answer.get("DataFormat", "AVRO")
        if not isinstance(text, str):
            raise self._error(f"gave an answer without a schema for {what}", None)
        return RegisteredSchema(text, kind if kind in KINDS else "", guid=self._key(answer, what))

    def _key(self, answer: dict[str, Any], what: str) -> uuid.UUID:
        try:
            return uuid.UUID(answer["SchemaVersionId"])
        except (KeyError, ValueError, TypeError, AttributeError):
            raise self._error(f"gave an answer without an id for {what}", None) from None

    def _id(self, subject: str) -> dict[str, str]:
        return {"RegistryName": self._options.name, "SchemaName": subject}

    def _call(self, method: str, what: str, **given: Any) -> dict[str, Any] | None:
        """The answer to a call; None if Glue has no such thing.

        :raises SchemaRegistryError: for any other error.
        """
        client = self._client()
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found: dict[str, Any] = getattr(client, method)(**given)
        except ClientError as e:
            error = e.response.get("Error", {})
            code = str(error.get("Code"))[:100]
            if code == _UNKNOWN:
                return None
            if code == "InvalidInputException":
                words = " ".join(str(error.get("Message")).split())[:_LONGEST_WORDS]
                raise self._error(f"refuses {what}: {words}", None) from None
            raise self._error(
                f"gave no answer for {what}: {code}", "Check the credentials, and what they allow in Glue."
            ) from None
        except BotoCoreError as e:
            raise self._error(
                f"gave no answer for {what}: {type(e).__name__}",
                "Check the region, and that botocore finds credentials there.",
            ) from None
        return found

    def _client(self) -> Any:
        if self._made is None:
            try:
                from botocore.config import Config
                from botocore.exceptions import BotoCoreError
                from botocore.session import Session
            except ImportError:
                raise SchemaRegistryError(
                    "AWS Glue is asked by botocore, which is not installed",
                    hint="pip install 'pyspark-kafkalog[aws]', on the driver and all workers.",
                ) from None
            options = self._options
            retries = {"total_max_attempts": _ATTEMPTS, "mode": "standard"}
            config = Config(connect_timeout=_SECONDS, read_timeout=_SECONDS, retries=retries)
            try:
                self._made = Session().create_client(
                    "glue", region_name=options.region, endpoint_url=options.endpoint, config=config
                )
            except (BotoCoreError, ValueError) as e:  # the latter for an endpoint that isn't a URL
                hint = "Check the options region and endpoint."
                raise self._error(f"can't be reached: {type(e).__name__}", hint) from None
        return self._made

    def _unknown(self, what: str) -> SchemaRegistryError:
        return self._error(
            f"does not know {what}", "Check the region and the name of the registry, and that of the schema."
        )

    def _error(self, did: str, hint: str | None) -> SchemaRegistryError:
        return SchemaRegistryError(f"The Glue registry {self._options.name!r} {did}", hint=hint)
