"""Schemas of Apicurio Registry 3, by its own API (``/apis/registry/v3``) and the ids of its serializers.

Its API like Confluent's knows a content id only. A subject is an artifact here, in the group ``default``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pyspark_kafkalog.extensions.typed_values.registries.contract import ApicurioId, Key, shown
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import (
    WAIT,
    RegisteredSchema,
    SchemaRegistry,
    UnknownError,
)

_MOST_REFERENCES, _DEEPEST = 1000, 50


class ApicurioRegistry(SchemaRegistry):
    """Apicurio Registry.

    A number before a value is that of the version of an artifact, or of its content, as is the default of
    Apicurio 3: ``apicurio.registry.use-id`` says so.
    """

    _paths = "it ends with /apis/registry/v3"

    def __init__(self, options: RegistryOptions) -> None:
        super().__init__(options)
        self._use_id = options.use_id
        self._by_key: dict[ApicurioId, RegisteredSchema] = {}

    def by_key(self, key: Key, *, wait: float = WAIT) -> RegisteredSchema:
        """See :meth:`.contract.SchemaSource.by_key`; it may become known while this waits."""
        named = self._named(key)
        found = self._by_key.get(named)
        if found is None:
            found = self._by_key[named] = self._of_id(named, time.monotonic() + wait)
        return found

    def knows(self, key: Key, *, wait: float = WAIT) -> bool:
        """See :meth:`.contract.SchemaSource.knows`."""
        named = self._named(key)
        path, what = f"/ids/{named.name}s/{named.number}", shown(named)
        if named not in self._by_key:
            try:
                self._content(path, what, time.monotonic() + wait, waits_for_it=False)
            except UnknownError:
                return False
        return True

    def _named(self, key: Key) -> ApicurioId:
        if isinstance(key, int):
            key = ApicurioId(self._use_id, key)
        assert isinstance(key, ApicurioId), "Apicurio's ids are numbers"
        return key

    def latest(self, subject: str, *, wait: float = WAIT) -> RegisteredSchema:
        """See :meth:`.contract.SchemaSource.latest`."""
        path = f"/groups/default/artifacts/{quote(subject, safe='')}/versions/branch=latest"
        deadline = time.monotonic() + wait
        answer = self._ask(path, f"artifact {subject!r}", deadline)
        return self._of_id(self._id_in(answer, f"artifact {subject!r}"), deadline)

    def _of_id(self, key: ApicurioId, deadline: float) -> RegisteredSchema:
        what = shown(key)
        path = f"/ids/{key.name}s/{key.number}"
        text = self._content(path, what, deadline, waits_for_it=True).decode(errors="replace")
        found = self._answer(f"/search/versions?{key.name}={key.number}", what, deadline, waits_for_it=True)
        versions = found.get("versions")
        kind = versions[0].get("artifactType") if isinstance(versions, list) and versions else None
        texts: dict[str, str] = {}
        names: dict[str, dict[str, None]] = {}
        self._refer_to(f"{path}/references", what, texts, names, 0, deadline)
        return RegisteredSchema(
            text,
            kind if isinstance(kind, str) else "",
            tuple(texts.values()),
            key.number if key.number < 1 << 32 else None,
            tuple(tuple(names[place]) for place in texts),
        )

    def _id_in(self, answer: Mapping[str, Any], what: str) -> ApicurioId:
        number = answer.get(self._use_id)
        if type(number) is not int or number < 0:
            raise self._error(f"gave an answer without an id for {what}")
        return ApicurioId(self._use_id, number)

    def _refer_to(
        self,
        path: str,
        what: str,
        texts: dict[str, str],
        names: dict[str, dict[str, None]],
        depth: int,
        deadline: float,
    ) -> None:
        """Add what a schema refers to to ``texts``, by its place, each behind what it needs itself.

        :param path: where the list of its references is.
        :param names: gets their names.
        """
        content = self._content(path, what, deadline, waits_for_it=True)
        try:
            listed = json.loads(content.decode())
            given = [
                (str(each["name"]), each.get("groupId") or "default", each["artifactId"], each["version"])
                for each in listed
            ]
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            raise self._error(f"gave references of {what} that can't be read") from None
        if depth == _DEEPEST or len(texts) + len(given) > _MOST_REFERENCES:
            raise self._error(f"has references of {what} that lead back, or too many")
        for name, *parts in given:
            group, artifact, version = (quote(str(part), safe="") for part in parts)
            place = f"/groups/{group}/artifacts/{artifact}/versions/{version}"
            names.setdefault(place, {})[name] = None
            if place not in texts:
                self._refer_to(f"{place}/references", what, texts, names, depth + 1, deadline)
                of = f"artifact {str(parts[1])[:1000]!r}"
                referred = self._content(f"{place}/content", of, deadline, waits_for_it=True)
                texts[place] = referred.decode(errors="replace")
