"""The fields of classes that code reads, by the types that annotations give to what they are read from.

A name alone proves little: ``request.limit`` reads no field of another class with a ``limit``. So this
follows annotations of parameters, fields, variables and results, which mypy holds true, and assignments.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

Read = tuple[str, str]
"""A class and its field."""
_COPIES = {"replace", "next", "cast"}
"""Functions that return what they are given."""


def fields_read(sources: Iterable[str]) -> set[Read]:
    """The fields that code in these modules reads from an object of a class: the class, and the field.

    What a class reads in its ``__post_init__`` only checks a value.
    """
    trees = [ast.parse(source) for source in sources]
    names = _Names(trees)
    return {read for tree in trees for read in _reads_in(tree, {}, names, None)}


class _Names:
    """The classes and functions of all modules: types of fields and results, by name."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self.bases: dict[str, set[str]] = defaultdict(set)
        self.members: dict[str, dict[str, set[str]]] = defaultdict(dict)
        self.results: dict[str, set[str]] = defaultdict(set)
        self._assigned: list[tuple[str, str, ast.expr, dict[str, set[str]]]] = []
        for tree in trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self._add(node)
                elif isinstance(node, ast.FunctionDef) and node.returns is not None:
                    self.results[node.name] |= _classes(node.returns)
        for owner, name, value, given in self._assigned * 2:  # one may be assigned from another
            members = self.members[owner]
            members[name] = members.get(name, set()) | _kinds(value, given, self)

    def _add(self, node: ast.ClassDef) -> None:
        members = self.members[node.name]
        self.bases[node.name] |= {each for base in node.bases for each in _classes(base)}
        for inner in ast.walk(node):
            if isinstance(inner, ast.AnnAssign):
                target = inner.target
                name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
                members[name] = members.get(name, set()) | _classes(inner.annotation)
            elif isinstance(inner, ast.FunctionDef):
                if inner.returns is not None:
                    members[inner.name] = members.get(inner.name, set()) | _classes(inner.returns)
                arguments = inner.args.args + inner.args.kwonlyargs
                given = {each.arg: _classes(each.annotation) for each in arguments if each.annotation}
                for part in ast.walk(inner):
                    if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Attribute):
                        self._assigned.append((node.name, part.targets[0].attr, part.value, given))

    def owners(self, kind: str) -> set[str]:
        """A class with those that it inherits from."""
        found, rest = {kind}, [kind]
        while rest:
            new = self.bases.get(rest.pop(), set()) - found
            found |= new
            rest += new
        return found

    def member(self, kinds: Iterable[str], name: str) -> set[str]:
        """The classes of a field, or of what a method gives."""
        return {
            each
            for kind in kinds
            for owner in self.owners(kind)
            for each in self.members.get(owner, {}).get(name, ())
        }


def _classes(annotation: ast.expr) -> set[str]:
    """The names in an annotation, also in quotes: of classes and containers alike."""
    found = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)
    return found


def _reads_in(
    node: ast.AST, variables: dict[str, set[str]], names: _Names, owner: str | None
) -> Iterator[Read]:
    if isinstance(node, ast.ClassDef):
        owner = node.name
    elif isinstance(node, ast.FunctionDef | ast.Lambda):
        if getattr(node, "name", "") == "__post_init__":
            return
        variables = dict(variables)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for position, argument in enumerate(arguments):
            if argument.annotation is not None:
                variables[argument.arg] = _classes(argument.annotation)
            elif position == 0 and owner is not None and argument.arg in ("self", "cls"):
                variables[argument.arg] = {owner}
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        variables[node.target.id] = _classes(node.annotation)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            _assign(target, node.value, variables, names)
    elif isinstance(node, ast.NamedExpr):
        _assign(node.target, node.value, variables, names)
    elif isinstance(node, ast.For | ast.comprehension):
        _assign(node.target, node.iter, variables, names)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        _assign(node.optional_vars, node.context_expr, variables, names)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        for kind in _kinds(node.value, variables, names):
            yield from ((each, node.attr) for each in names.owners(kind))
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        children.sort(key=lambda child: not isinstance(child, ast.comprehension))
    for child in children:
        yield from _reads_in(child, variables, names, owner)


def _assign(target: ast.expr, value: ast.expr, variables: dict[str, set[str]], names: _Names) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for each, part in zip(target.elts, value.elts, strict=True):
            _assign(each, part, variables, names)
        return
    kinds = _kinds(value, variables, names)
    for each in target.elts if isinstance(target, ast.Tuple) else [target]:
        if isinstance(each, ast.Name):
            variables[each.id] = kinds


def _kinds(node: ast.expr, variables: dict[str, set[str]], names: _Names) -> set[str]:
    """The names of the classes that an expression may be of; none if annotations don't tell."""
    if isinstance(node, ast.Name):
        return variables.get(node.id, set())
    if isinstance(node, ast.Attribute):
        return names.member(_kinds(node.value, variables, names), node.attr)
    if isinstance(node, ast.Call):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in _COPIES:
            return {kind for argument in node.args for kind in _kinds(argument, variables, names)}
        if name in names.members:
            return {name}
        if isinstance(function, ast.Attribute):
            owners = _kinds(function.value, variables, names)
            if found := names.member(owners, name):
                return found
        return names.results.get(name, set()) if isinstance(function, ast.Name) else set()
    if isinstance(node, ast.IfExp):
        return _kinds(node.body, variables, names) | _kinds(node.orelse, variables, names)
    if isinstance(node, ast.BoolOp):
        return {kind for value in node.values for kind in _kinds(value, variables, names)}
    if isinstance(node, ast.NamedExpr | ast.Subscript | ast.Starred | ast.Await):
        return _kinds(node.value, variables, names)
    return set()
