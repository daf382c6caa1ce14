"""Schemas by their ids, from a registry with Confluent's API.

An id never changes its meaning, so what was found is kept as long as the process lives. An id that the
registry does not know yet is asked for again: a producer may have registered it a moment ago, elsewhere.
Errors name the registry by its host, and never quote a login or a token; of answers only why a schema is
refused.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import ssl
import time
import urllib.error
import urllib.request
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from pyspark_kafkalog.errors import SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.named_origin import opener, reason_of
from pyspark_kafkalog.tls import tls_context

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.typed_values.registries.contract import Key

WAIT = 60.0
"""Seconds for which a registry that fails, or does not know an id, is asked again."""
FIRST_CONTACT = 5.0
"""Seconds for which a registry is asked that has not answered this process, where a query is planned: an
address that is wrong is told as soon as for brokers. Tasks wait: others have had answers."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
SHORTEST_WAIT = 1.0
"""Seconds that connecting may take at least, as for a second registry behind one that is silent."""
_IF_LOST = "If the schema is lost, start after the record, or leave the format out to read the bytes."
_QUIET = 2.0
"""Seconds before a warning says so."""
LARGEST_ANSWER, _LARGEST_REASON = 16 << 20, 1 << 16
"""Bytes; the former are also those of all that a schema refers to."""
_MOST_REFERENCES, _DEEPEST = 1000, 50
_UNKNOWN = {404, 422}
_REFUSED = {409, 422}
_MOST_WORDS = _LONGEST_NAME = 1000
"""Characters."""
_DENIED = {401: "does not accept the login", 403: "denies the request"}
_LOGIN = "Give the login as basic.auth.user.info (user:password) or bearer.auth.token."
_log = logging.getLogger("pyspark_kafkalog")
_T = TypeVar("_T")
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it.

    ``kind`` is ``AVRO``, ``JSON`` or ``PROTOBUF``. ``references`` are the texts of the schemas that it names,
    each before those that need it; ``names`` are the names that it, or another of these, has for each, in the
    same order. ``schema_id`` and ``guid``, the keys that records have, are None if the registry did not tell
    them.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[str, ...] = ()
    schema_id: int | None = None
    names: tuple[tuple[str, ...], ...] = ()
    guid: uuid.UUID | None = None

    @property
    def named_references(self) -> tuple[tuple[str, str], ...]:
        """The texts of ``references``, each by each of its names."""
        return tuple(
            (name, text) for text, names in zip(self.references, self.names, strict=False) for name in names
        )


class AgainError(Exception):
    """The reason why a request failed that may succeed later."""


class UnknownError(Exception):
    """The registry does not know what is asked for.

    :param has_code: whether the answer has the code of an error, as a registry's answers have.
    """

    def __init__(self, *, has_code: bool = True) -> None:
        super().__init__()
        self.has_code = has_code


class _RefusedError(Exception):
    """The registry refuses a schema, for a reason in its words."""


class PatientRegistry(ABC):
    """A registry that is asked again for a while if it fails, or does not know something yet."""

    def __init__(self) -> None:
        self._has_answered = False

    @property
    @abstractmethod
    def _unknown_hint(self) -> str:
        """The advice about something that it does not know after all this time."""

    @property
    @abstractmethod
    def _silent_hint(self) -> str:
        """The advice about one that gives no answer."""

    def _of_plan(self, deadline: float) -> float:
        """The deadline of a request where a query is planned."""
        return deadline if self._has_answered else min(deadline, time.monotonic() + FIRST_CONTACT)

    def _patiently(self, ask: Callable[[], _T], what: str, deadline: float, *, waits_for_it: bool) -> _T:
        """Call ``ask`` for its result, again until the deadline while it raises AgainError.

        :param waits_for_it: whether it is so if the registry does not know what is asked for, too.
        :raises UnknownError: if it isn't.
        :raises SchemaRegistryError: if there is no answer by then.
        """
        pause, quiet_until = _FIRST_PAUSE, time.monotonic() + _QUIET
        while True:
            try:
                return ask()
            except AgainError as e:
                error = self._error(f"gave no answer for {what}: {e}", self._silent_hint)
            except UnknownError:
                if not waits_for_it:
                    raise
                error = self._error(f"does not know {what}", f"{self._unknown_hint} {_IF_LOST}")
            now = time.monotonic()
            left = deadline - now
            if left <= 0:
                raise error
            if now > quiet_until:
                quiet_until = deadline
                _log.warning("Retrying for up to %d s: %s", left, error)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    @abstractmethod
    def _error(self, did: str, hint: str | None = None) -> SchemaRegistryError:
        """The error of this registry, which ``did`` something."""


class SchemaRegistry(PatientRegistry):
    """A schema registry; one for each process and :class:`RegistryOptions`, by :func:`.registry_of`."""

    _paths = "Apicurio's is /apis/ccompat/v7, and most have none"

    def __init__(self, options: RegistryOptions) -> None:
        super().__init__()
        self._options = options
        self._found: dict[str, RegisteredSchema] = {}
        """The answer to each path."""
        self._context: ssl.SSLContext | None = None

    def by_id(self, schema_id: int, *, wait: float = WAIT) -> RegisteredSchema:
        """The schema with this id.

        :param wait: seconds in which the registry may come to know it.
        :raises SchemaRegistryError: if it does not, or does not answer.
        """
        return self._cached(f"/schemas/ids/{schema_id}", f"schema id {schema_id}", wait)

    def by_key(self, key: Key) -> RegisteredSchema:
        """See :meth:`.contract.SchemaSource.by_key`; it may become known while this waits."""
        if isinstance(key, uuid.UUID):
            return self.by_guid(str(key))
        assert isinstance(key, int), "Confluent's ids are numbers"
        return self.by_id(key)

    def knows(self, key: Key, *, wait: float = WAIT) -> bool:
        """See :meth:`.contract.SchemaSource.knows`."""
        path, what = f"/schemas/ids/{key}", f"schema id {key}"
        if path not in self._found:
            try:
                self._answer(path, what, time.monotonic() + wait, waits_for_it=False)
            except UnknownError:
                return False
        return True

    def by_guid(self, guid: str, *, wait: float = WAIT) -> RegisteredSchema:
        """The schema with this GUID, as the headers of records have it (Confluent Platform 8.0)."""
        return self._cached(f"/schemas/guids/{guid}", f"schema GUID {guid}", wait)

    def latest(self, subject: str, *, wait: float = WAIT) -> RegisteredSchema:
        """The newest schema of a subject. It is asked for each time.

        :raises SchemaRegistryError: if there is none, or the registry does not answer.
        """
        path, what = f"/subjects/{quote(subject, safe='')}/versions/latest", f"subject {subject!r}"
        return self._read(self._ask(path, what, time.monotonic() + wait), what, wait)

    def find(self, subject: str, schema: RegisteredSchema, *, wait: float = WAIT) -> RegisteredSchema:
        """A schema among those of a subject, with its id.

        :raises SchemaRegistryError: if it isn't one of them.
        """
        return self._sent(f"/subjects/{quote(subject, safe='')}", subject, schema, wait)

    def register(self, subject: str, schema: RegisteredSchema, *, wait: float = WAIT) -> RegisteredSchema:
        """Make a schema the newest one of a subject, unless it has it; gives it with its id.

        :raises SchemaRegistryError: if the registry refuses it, in its words.
        """
        return self._sent(f"/subjects/{quote(subject, safe='')}/versions", subject, schema, wait)

    def _sent(self, path: str, subject: str, schema: RegisteredSchema, wait: float) -> RegisteredSchema:
        what = f"this schema of subject {subject!r}"
        kind = {} if schema.kind == "AVRO" else {"schemaType": schema.kind}
        body = json.dumps({"schema": schema.text, **kind}).encode()
        try:
            answer = self._ask(path, what, time.monotonic() + wait, body)
        except _RefusedError as e:
            raise self._error(
                f"refuses {what}: {e}", hint="Change the columns, or the subject's compatibility."
            ) from None
        schema_id = _id(answer)
        if schema_id is None:
            raise self._error(f"gave an answer without an id for {what}")
        return replace(schema, schema_id=schema_id, guid=_guid(answer))

    def _cached(self, path: str, what: str, wait: float) -> RegisteredSchema:
        found = self._found.get(path)
        if found is None:
            answer = self._answer(path, what, time.monotonic() + wait, waits_for_it=True)
            found = self._found[path] = self._read(answer, what, wait)
        return found

    def _read(self, answer: Mapping[str, Any], what: str, wait: float) -> RegisteredSchema:
        """The schema of an answer, with all that it refers to.

        :raises SchemaRegistryError: also for references without an end.
        """
        found: dict[tuple[str, int], str] = {}
        names: dict[tuple[str, int], dict[str, None]] = {}
        self._refer(answer, what, found, names, (), time.monotonic() + wait)
        kind = answer.get("schemaType", "AVRO")
        return RegisteredSchema(
            self._text(answer, what),
            kind if _is_name(kind) else "",
            tuple(found.values()),
            _id(answer),
            tuple(tuple(names[reference]) for reference in found),
            _guid(answer),
        )

    def _refer(
        self,
        answer: Mapping[str, Any],
        what: str,
        found: dict[tuple[str, int], str],
        names: dict[tuple[str, int], dict[str, None]],
        within: tuple[tuple[str, int], ...],
        deadline: float,
    ) -> None:
        """Add what a schema refers to to ``found``, by subject and version, each behind what it needs itself.

        :param names: gets their names.
        :param within: the schemas that have led here.
        """
        for name, subject, version in self._references(answer, what):
            reference = subject, version
            names.setdefault(reference, {})[name] = None
            if reference in found:
                continue
            size = sum(map(len, found.values()))
            if reference in within or len(within) == _DEEPEST or len(found) == _MOST_REFERENCES:
                raise self._error(f"has references of {what} that lead back, or too many")
            if size > LARGEST_ANSWER:
                raise self._error(f"has more than {LARGEST_ANSWER} characters that {what} refers to")
            # A version that was deleted softly is asked for as well, as Confluent's client does.
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
            referred = self._ask(path, f"subject {subject!r}", deadline)
            self._refer(referred, what, found, names, (*within, reference), deadline)
            found[reference] = self._text(referred, what)

    def _text(self, answer: Mapping[str, Any], what: str) -> str:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise self._error(f"gave an answer without a schema for {what}")
        return text

    def _references(self, answer: Mapping[str, Any], what: str) -> list[tuple[str, str, int]]:
        """The name, subject and version of each reference."""
        found = answer.get("references") or []
        try:
            named = [
                (reference.get("name", ""), reference["subject"], reference["version"]) for reference in found
            ]
        except (TypeError, KeyError, AttributeError):
            named = [("", "", "")]
        if not all(_is_name(name) and _is_name(of) and type(version) is int for name, of, version in named):
            raise self._error(f"gave references of {what} that can't be read")
        return named

    def _ask(self, path: str, what: str, deadline: float, body: bytes | None = None) -> Mapping[str, Any]:
        """The answer of the first registry that gives one; it is an error if none knows it now."""
        try:
            return self._answer(path, what, self._of_plan(deadline), waits_for_it=False, body=body)
        except UnknownError as e:
            if not e.has_code:
                raise self._error(
                    f"does not know {what}, and does not answer as registries do",
                    hint=f"Check the path in {self._options.url_option}: {self._paths}.",
                ) from None
            raise self._error(
                f"does not know {what}",
                hint=f"Check {self._options.url_option} and the name of the topic. Or give value.schema"
                " (key.schema) to a read, and auto.register.schemas=true to a write.",
            ) from None

    def _answer(
        self, path: str, what: str, deadline: float, *, waits_for_it: bool, body: bytes | None = None
    ) -> Mapping[str, Any]:
        """The JSON object that :meth:`_content` is."""
        content = self._content(path, what, deadline, waits_for_it=waits_for_it, body=body)
        try:
            answer = json.loads(content.decode())
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._error(
                f"gave no JSON object for {what}", hint=f"Check {self._options.url_option}, with its path."
            )
        return answer

    def _content(
        self, path: str, what: str, deadline: float, *, waits_for_it: bool, body: bytes | None = None
    ) -> bytes:
        """The answer of the first registry that gives one; all are asked again until the deadline.

        :param body: to be sent to it.
        :raises UnknownError: if none knows it, and none is asked again.
        :raises _RefusedError: if it refuses the body.
        """
        return self._patiently(
            lambda: self._of_first(path, what, deadline, body), what, deadline, waits_for_it=waits_for_it
        )

    def _of_first(self, path: str, what: str, deadline: float, body: bytes | None) -> bytes:
        """The answer of the first registry that gives one."""
        unknown, why = None, ""
        for url in self._options.urls:
            try:
                return self._get(url, path, what, deadline, body)
            except AgainError as e:
                why = str(e)
            except UnknownError as e:
                unknown = e
        raise unknown or AgainError(why)

    @property
    def _unknown_hint(self) -> str:
        return f"Check {self._options.url_option}: the records may have been written with another registry."

    @property
    def _silent_hint(self) -> str:
        way = "" if self._has_answered else ", and that the registry runs and can be reached from here"
        return f"Check {self._options.url_option}{way}."

    def _get(self, url: str, path: str, what: str, deadline: float, body: bytes | None) -> bytes:
        """The answer of one registry, which may take the time of one read beyond the deadline.

        :raises AgainError: if it may answer later.
        :raises UnknownError: if it does not know what is asked for.
        :raises _RefusedError: if it refuses ``body``.
        """
        options = self._options
        if self._context is None and url.startswith("https:"):
            self._context = tls_context(options.tls, "schema.registry.ssl")
        headers = self._headers() if body is None else {**self._headers(), "Content-Type": _MEDIA_TYPE}
        request = urllib.request.Request(f"{url.rstrip('/')}{path}", body, headers)
        timeout = options.timeout_ms / 1000
        connecting = min(timeout, max(deadline - time.monotonic(), SHORTEST_WAIT))
        try:
            sender = opener(deadline + timeout, self._context, connecting=connecting)
            with sender.open(request, timeout=timeout) as response:
                self._has_answered = True
                content: bytes = response.read(LARGEST_ANSWER + 1)
        except urllib.error.HTTPError as e:
            self._has_answered = True
            words = _words(e) if body is not None and e.code in _REFUSED else ""
            has_code = e.code in _UNKNOWN and not words and _has_code(e)
            e.close()
            if words:
                raise _RefusedError(words) from None
            if e.code in _UNKNOWN:
                raise UnknownError(has_code=has_code) from None
            if e.code in _DENIED:
                raise self._error(f"{_DENIED[e.code]} (HTTP status {e.code})", hint=_LOGIN) from None
            if e.code in (408, 429) or e.code >= 500:
                raise AgainError(f"HTTP status {e.code}") from None
            raise self._error(f"answers a request for {what} with HTTP status {e.code}") from None
        except (OSError, http.client.HTTPException) as e:
            raise AgainError(reason_of(e)) from None
        if len(content) > LARGEST_ANSWER:
            raise self._error(f"gave more than {LARGEST_ANSWER} bytes for {what}")
        return content

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json"}
        if self._options.user_info is not None:
            encoded = base64.b64encode(self._options.user_info.encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
        elif self._options.token is not None:
            headers["Authorization"] = f"Bearer {self._options.token}"
        return headers

    def _error(self, did: str, hint: str | None = None) -> SchemaRegistryError:
        hosts = ", ".join(urlsplit(url).netloc for url in self._options.urls)
        return SchemaRegistryError(f"The schema registry {hosts} {did}", hint=hint)


def _id(answer: Mapping[str, Any]) -> int | None:
    """The id in an answer; None for none that four bytes can hold."""
    found = answer.get("id")
    return found if type(found) is int and 0 <= found < 1 << 32 else None


def _guid(answer: Mapping[str, Any]) -> uuid.UUID | None:
    """The GUID in an answer, of registries since Confluent Platform 8.0."""
    try:
        return uuid.UUID(answer["guid"])
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _is_name(found: object) -> bool:
    """Whether it can be a name in a message or a path."""
    return isinstance(found, str) and len(found) <= _LONGEST_NAME and found.isprintable()


def _words(answer: urllib.error.HTTPError) -> str:
    """The text of a registry's refusal, in one line."""
    try:
        said = json.loads(answer.read(_LARGEST_REASON).decode())["message"]
    except (OSError, http.client.HTTPException, ValueError, RecursionError, TypeError, KeyError):
        said = None
    words = " ".join(said.split()) if isinstance(said, str) else ""
    return words[:_MOST_WORDS] or f"HTTP status {answer.code}"


def _has_code(answer: urllib.error.HTTPError) -> bool:
    """Whether it is an answer with the code of an error."""
    try:
        return bool({"error_code", "name"} & json.loads(answer.read(_LARGEST_REASON).decode()).keys())
    except (OSError, http.client.HTTPException, ValueError, RecursionError, AttributeError):
        return False
