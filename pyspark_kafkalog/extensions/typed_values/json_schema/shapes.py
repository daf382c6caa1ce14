"""The shapes of JSON values: what a schema allows, as far as it decides a type.

Two shapes have one that allows what both do (:func:`both`), for ``allOf``, and one that allows what either
does (:func:`either`), for ``oneOf``, ``anyOf`` and lists of types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

import pyarrow as pa


@dataclass(frozen=True)
class Shape:
    """``is_nullable``: whether null is allowed, too."""

    is_nullable: bool = field(default=False, kw_only=True)

    @cached_property
    def size(self) -> int:
        """The number of shapes that it is of: one that is at several places counts at each of them."""
        return 1


@dataclass(frozen=True)
class Anything(Shape):
    """Any value, of which nothing is said."""

    is_nullable: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class Mixed(Shape):
    """Values of no single type, for a reason in words."""

    why: str


@dataclass(frozen=True)
class NoValue(Shape):
    """No value, but null if that is allowed."""


@dataclass(frozen=True)
class Scalar(Shape):
    """Values of one type, and the type that they are read from JSON as."""

    type: pa.DataType
    read_as: pa.DataType

    @property
    def is_integer(self) -> bool:
        return bool(self.type == self.read_as and pa.types.is_integer(self.type))

    @property
    def is_number(self) -> bool:
        """Whether it is a number without a meaning of its own."""
        return self.type == self.read_as and _is_number(self.type)

    @property
    def is_text(self) -> bool:
        """Whether it is a string in JSON."""
        return not _is_number(self.read_as) and self.read_as != pa.bool_()


@dataclass(frozen=True)
class ArrayShape(Shape):
    """An array; with ``is_map`` of the entries of a map, with the fields ``key`` and ``value``."""

    item: Shape
    is_map: bool = False

    @cached_property
    def size(self) -> int:
        """See :attr:`Shape.size`."""
        return 1 + self.item.size


@dataclass(frozen=True)
class ObjectShape(Shape):
    """An object: its known fields, which of them must be there, and all others.

    ``others`` is None if nothing is said about them, and :class:`NoValue` if there are none.
    """

    fields: Mapping[str, Shape]
    required: frozenset[str] = frozenset()
    others: Shape | None = None
    is_map: bool = False

    @cached_property
    def size(self) -> int:
        """See :attr:`Shape.size`."""
        parts = [*self.fields.values(), *([] if self.others is None else [self.others])]
        return 1 + sum(part.size for part in parts)


def scalar(kind: pa.DataType, read_as: pa.DataType | None = None) -> Scalar:
    """Values of one type."""
    return Scalar(kind, kind if read_as is None else read_as)


def is_either(shapes: list[Shape]) -> Shape:
    """The shape of all that one of these allows."""
    nothing: Shape = NoValue()
    return reduce(either, shapes, nothing)


def either(one: Shape, other: Shape) -> Shape:
    """The shape of all that one of two shapes allows."""
    return replace(_either(one, other), is_nullable=one.is_nullable or other.is_nullable)


def _either(one: Shape, other: Shape) -> Shape:
    if isinstance(one, NoValue) or isinstance(other, NoValue):
        return other if isinstance(one, NoValue) else one
    for each in (one, other):
        if isinstance(each, Anything | Mixed):
            return each
    if isinstance(one, Scalar) and isinstance(other, Scalar):
        found = _wider(one, other)
        if found is not None:
            return found
    if isinstance(one, ArrayShape) and isinstance(other, ArrayShape) and one.is_map == other.is_map:
        return replace(one, item=either(one.item, other.item))
    if isinstance(one, ObjectShape) and isinstance(other, ObjectShape) and one.is_map == other.is_map:
        return ObjectShape(
            _merged(one.fields, other.fields, either),
            one.required & other.required,
            None if one.others is None or other.others is None else either(one.others, other.others),
            one.is_map,
        )
    return Mixed(f"it is {named(one)} or {named(other)}")


def _wider(one: Scalar, other: Scalar) -> Scalar | None:
    if (one.type, one.read_as) == (other.type, other.read_as):
        return one
    if one.is_integer and other.is_integer:
        return max(one, other, key=lambda each: each.type.bit_width)
    if one.is_number and other.is_number:
        return scalar(pa.float64())
    return scalar(pa.string()) if one.is_text and other.is_text else None


def both(one: Shape, other: Shape) -> Shape:
    """The shape of all that two shapes both allow."""
    return replace(_both(one, other), is_nullable=one.is_nullable and other.is_nullable)


def _both(one: Shape, other: Shape) -> Shape:
    for vague in (Anything, Mixed):
        if isinstance(one, vague) or isinstance(other, vague):
            return other if isinstance(one, vague) else one
    if isinstance(one, NoValue) or isinstance(other, NoValue):
        return NoValue()
    if isinstance(one, Scalar) and isinstance(other, Scalar):
        found = _narrower(one, other)
        if found is not None:
            return found
    if isinstance(one, ArrayShape) and isinstance(other, ArrayShape):
        return ArrayShape(both(one.item, other.item), one.is_map or other.is_map)
    if isinstance(one, ObjectShape) and isinstance(other, ObjectShape):
        return ObjectShape(
            _merged(one.fields, other.fields, both),
            one.required | other.required,
            _both_of(one.others, other.others),
            one.is_map or other.is_map,
        )
    return Mixed(f"it must be {named(one)} and {named(other)}")


def _both_of(one: Shape | None, other: Shape | None) -> Shape | None:
    return both(one, other) if one is not None and other is not None else one or other


def _narrower(one: Scalar, other: Scalar) -> Scalar | None:
    if (one.type, one.read_as) == (other.type, other.read_as):
        return one
    if one.is_integer and other.is_integer:
        return min(one, other, key=lambda each: each.type.bit_width)
    for each, rest in ((one, other), (other, one)):
        if each.is_text and rest == replace(rest, type=pa.string(), read_as=pa.string()):
            return each
        if _is_number(each.read_as) and rest.is_number and pa.types.is_floating(rest.type):
            return each
        if pa.types.is_integer(each.read_as) and rest.is_integer:
            return each
    return None


def extended(base: ObjectShape, branches: list[Shape]) -> ObjectShape:
    """An object with the fields that it has in some branches only; its own fields stay what they are.

    Branches that aren't objects say nothing about fields: they only tell which must be there.
    """
    found = is_either([branch for branch in branches if isinstance(branch, ObjectShape)])
    if not isinstance(found, ObjectShape):
        return base
    others = base.others if base.others is not None or base.fields else found.others
    return replace(base, fields={**base.fields, **_without(found.fields, base.fields)}, others=others)


def _without(fields: Mapping[str, Shape], known: Mapping[str, Shape]) -> dict[str, Shape]:
    return {name: shape for name, shape in fields.items() if name not in known}


def _merged(
    one: Mapping[str, Shape], other: Mapping[str, Shape], merge: Callable[[Shape, Shape], Shape]
) -> dict[str, Shape]:
    found = dict(one)
    for name, shape in other.items():
        found[name] = merge(found[name], shape) if name in found else shape
    return found


def named(shape: Shape) -> str:
    """The shape in a few words."""
    if isinstance(shape, ObjectShape):
        return "an object"
    if isinstance(shape, ArrayShape):
        return "an array"
    if isinstance(shape, Scalar):
        if shape.read_as == pa.bool_():
            return "a boolean"
        return "a string" if shape.is_text else "a number"
    return "anything"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
