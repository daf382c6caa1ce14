"""The documents of a JSON Schema, and what a ``$ref`` in them names.

Sources: RFC 6901 for pointers, and the chapters about base URIs in each draft.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urljoin

from pyspark_kafkalog.errors import UNREADABLE, SchemaError
from pyspark_kafkalog.options.offsets_json import where_not_json

DEEPEST = 100
"""Schemas in one another."""
_LONGEST_SHOWN = 200
_META_SCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")
"""Begin the names of schemas of schemas: a value that is a schema may be anything."""
_DATA = {"enum", "const", "default", "examples", "example"}
"""Keywords whose values are data."""


class Documents:
    """The documents that a schema is made of.

    :param text: the schema, as JSON.
    :param references: the schemas that it refers to, each with the name by which ``$ref`` names it.
    :raises SchemaError: for text that is not JSON, or no schema.
    """

    def __init__(self, text: str, references: Iterable[tuple[str, str]] = ()) -> None:
        self._bases: dict[int, str] = {}
        """The URI that references in an object are relative to, by the object's ``id()``."""
        self._by_uri: dict[str, Any] = {}
        for name, referred in references:
            self._add(_parsed(referred, f"The JSON Schema {name[:_LONGEST_SHOWN]!r}"), name)
        self.root = _parsed(text, "A JSON Schema")
        self._add(self.root, "")

    def find(self, reference: str, around: dict[str, Any], path: str) -> tuple[Any, str]:
        """The schema that a ``$ref`` names, and its place.

        :param around: the object that has it, at ``path``.
        :raises SchemaError: if there is none.
        """
        base = self._bases.get(id(around), "")
        whole, _, fragment = reference.partition("#")
        uri = _joined(base, whole)
        for known in (uri, whole) if whole else (uri,):
            if f"{known}#{fragment}" in self._by_uri:
                return self._by_uri[f"{known}#{fragment}"], f"{known}#{fragment}"
            if known in self._by_uri and (not fragment or fragment.startswith("/")):
                found = _pointed(self._by_uri[known], unquote(fragment))
                if found is not None:
                    return found, f"{known}#{fragment}"
        if uri.startswith(_META_SCHEMAS):
            return True, uri
        raise SchemaError(
            f"A JSON Schema refers to {reference[:_LONGEST_SHOWN]!r} at {path[:_LONGEST_SHOWN]}, which is"
            " neither in it nor among its references",
            hint="Register that schema, and add it to the references of this one. It is fetched from no other"
            " place.",
        )

    def _add(self, document: Any, uri: str) -> None:
        self._by_uri.setdefault(uri, document)
        todo = [(document, uri, 0)]
        while todo:
            node, base, depth = todo.pop()
            if depth > 10 * DEEPEST:
                continue
            if isinstance(node, list):
                todo += [(each, base, depth + 1) for each in node]
            elif isinstance(node, dict):
                for key in ("$id", "id"):
                    own = node.get(key)
                    if isinstance(own, str):
                        if own.startswith("#"):
                            self._by_uri.setdefault(f"{base}{own}", node)
                        else:
                            base = _joined(base, own.rstrip("#"))
                            self._by_uri.setdefault(base, node)
                        break
                for key in ("$anchor", "$dynamicAnchor"):
                    if isinstance(node.get(key), str):
                        self._by_uri.setdefault(f"{base}#{node[key]}", node)
                self._bases[id(node)] = base
                todo += [(each, base, depth + 1) for key, each in node.items() if key not in _DATA]


def title_of(text: str) -> str | None:
    """The title of a schema, which names it in subjects.

    :raises SchemaError: for text that is not JSON, or no schema.
    """
    found = _parsed(text, "A JSON Schema")
    title = found.get("title") if isinstance(found, dict) else None
    return title if isinstance(title, str) else None


def _joined(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def _parsed(text: str, what: str) -> Any:
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()  # refuses halves of surrogate pairs
    except UNREADABLE as e:
        raise SchemaError(
            f"{what} is not JSON{where_not_json(text, e)}",
            hint='Give the text of a JSON Schema, such as {"type": "object", "properties": {"id": {"type":'
            ' "integer"}}}, not DDL or a file.',
        ) from None
    if not isinstance(found, dict | bool):
        raise SchemaError(f"{what} is not valid: expected an object, got {text[:_LONGEST_SHOWN]}")
    return found


def _pointed(node: Any, pointer: str) -> Any:
    """The part of a document that a JSON pointer names; None for none."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and len(key) < 10 and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node if isinstance(node, dict | bool) else None
