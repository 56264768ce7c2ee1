"""From the JSON schema of a tool's arguments to GBNF rules.

llama-cpp-python has a converter too. It lets control characters into strings, writes constants
with a backslash wrongly, forgets ``enum`` next to a list of types and has no bounds of numbers;
and it knows JSON only, while Gemma writes arguments in a notation of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.engines.llm.tool_calls.gbnf import Rules
from pipeline.engines.llm.tool_calls.schema_check import UNCHECKED, fitting, resolve
from pipeline.engines.llm.tool_calls.schema_merge import UnusableSchema, merged
from pipeline.engines.llm.tool_calls.shapes import Shape, loop
from pipeline.engines.llm.tool_calls.type_rules import SchemaTooLarge, TypeRules

_MOST_LEVELS = 32
_MOST_PARTS = 5_000
"""Schemas inside of one, counted each time that they are used."""
_ITEMS_OF_A_PART = 20

_CHECKED = frozenset(
    [
        "multipleOf",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "not",
        "if",
        "minProperties",
        "maxProperties",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "propertyNames",
    ]
)
"""Keywords that a call is written without much regard to, and measured by when it is complete."""
_NO_CONSTRAINTS = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "nullable",
        "strict",
        "$defs",
        "definitions",
        "$schema",
        "$id",
        "$comment",
        "$anchor",
    ]
)


class SchemaRules(TypeRules):
    """Adds rules for one schema to ``rules``. Raises ``UnusableSchema``."""

    def __init__(self, rules: Rules, root: Any) -> None:
        super().__init__(rules, root)
        self._references: dict[str, str] = {}
        self._leading: list[str] = []
        """References that are being followed with nothing written in front of them."""
        self._parts = 0
        self.not_enforced: set[str] = set()
        """Keywords that do not count."""
        self.checked: set[str] = set()
        """Keywords that a call is only measured by."""
        self.unusable: set[str] = set()
        """What is wrong with parts of it, which may be anything now."""

    def arguments(self) -> str:
        """The whole schema as an object; one that declares no members has none."""
        schema = self._root
        if not isinstance(schema, Mapping):
            raise UnusableSchema("it is not an object")
        kind = schema.get("type", "object")
        if kind != "object" and not (isinstance(kind, list) and "object" in kind):
            raise UnusableSchema("arguments are always an object")
        if not set(schema) - _NO_CONSTRAINTS - {"type"}:
            schema = {**schema, "properties": {}}
        return self.value({**schema, "type": "object"}, 0)

    def value(self, schema: Any, level: int) -> str:
        """An expression for what fits ``schema``."""
        self.count()
        if level > _MOST_LEVELS:
            raise UnusableSchema("it is nested too deeply")
        if schema is True:
            return self._any()
        if schema is False:
            raise UnusableSchema("nothing fits it")
        if not isinstance(schema, Mapping):
            raise UnusableSchema("a part of it is not a schema")
        schema = {k: v for k, v in schema.items() if k not in _NO_CONSTRAINTS}
        self.not_enforced |= schema.keys() & UNCHECKED
        self.checked |= schema.keys() & _CHECKED
        if "$ref" in schema:
            return self._reference(schema, level)
        if "const" in schema or "enum" in schema:
            return self._constants(schema)
        if "allOf" in schema:
            return self.value(self._merged(_without(schema, "allOf"), schema["allOf"]), level + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._alternatives(_without(schema, keyword), schema[keyword], level)
        return self.typed(schema, level)

    def count(self, items: int = 0) -> None:
        """One more schema, or one more use of it. ``items``: in its lists."""
        self._parts += 1 + items // _ITEMS_OF_A_PART
        if self._parts > _MOST_PARTS:
            raise SchemaTooLarge("it is too large")

    # --- combinations

    def _reference(self, schema: Mapping[str, Any], level: int) -> str:
        reference = schema["$ref"]
        found, target = resolve(self._root, reference)
        if not found:
            raise UnusableSchema("it refers to something outside of it")
        if others := _without(schema, "$ref"):
            return self.value(self._merged(others, [target]), level + 1)
        if reference in self._leading:
            raise UnusableSchema("it refers to itself and to nothing else")
        if reference not in self._references:
            self._define(reference, target, level)
        return self._references[reference]

    def _define(self, reference: str, target: Any, level: int) -> None:
        name = self._references[reference] = self._rules.reserve()
        self._shapes[name] = loop(reference)
        self._unfinished.add(reference)
        self._leading.append(reference)
        try:
            expression = self.value(target, level + 1)
            shape = self._shape(expression)
        except UnusableSchema:
            self._rules.define(name, self._any())
            del self._references[reference]
            raise
        finally:
            self._leading.pop()
            self._unfinished.discard(reference)
        self._rules.define(name, expression)
        loops = shape.loops & self._unfinished
        self._shapes[name] = Shape(shape.starts, shape.first, shape.width, loops)

    def _constants(self, schema: Mapping[str, Any]) -> str:
        values = self._listed(schema)
        if not values:
            raise UnusableSchema("no value fits it")
        return self._one_of(values)

    def _listed(self, schema: Mapping[str, Any]) -> list[Any]:
        values = schema.get("enum", [schema.get("const")])
        if not isinstance(values, list):
            raise UnusableSchema("enum is not a list")
        self.count(len(values))
        others = _without(schema, "enum")
        return fitting(values, others, self._root)

    def _alternatives(self, others: Mapping[str, Any], options: Any, level: int) -> str:
        """What is unusable is left out as long as there is something else."""
        if not isinstance(options, list) or not options:
            raise UnusableSchema("a list of alternatives is missing")
        found: list[str] = []
        values: list[Any] = []
        problem = UnusableSchema("no value fits it")
        for option in options:
            try:
                one = self._merged(others, [option]) if others else option
                if _lists(one):
                    self.count()
                    values += self._listed(one)
                else:
                    found.append(self.value(one, level + 1))
            except SchemaTooLarge:
                raise
            except UnusableSchema as why:
                problem = why
                self.left_out.add(str(why))
        if values:
            found.append(self._one_of(values))
        if not found:
            raise problem
        return self._choice(found)

    def _merged(self, schema: Mapping[str, Any], others: Any) -> dict[str, Any]:
        """One schema that says what ``schema`` and all the ``others`` say."""
        if not isinstance(others, list):
            raise UnusableSchema("a list of schemas is missing")
        result = dict(schema)
        for other in others:
            self.count(_size(result) + _size(other))
            if isinstance(other, Mapping) and "$ref" in other and "$ref" in result:
                target = resolve(self._root, other["$ref"])[1]
                other = {**_without(other, "$ref"), "allOf": [*_listed_in(other, "allOf"), target]}
            if other is True:
                continue
            if not isinstance(other, Mapping):
                raise UnusableSchema("a part of it is not a schema")
            said = {k: v for k, v in other.items() if k not in _NO_CONSTRAINTS}
            result = merged(result, said, self.checked.add)
        return result

    def group(self, schema: Any, level: int) -> str:
        """A part with something written in front of it."""
        leading, self._leading = self._leading, []
        try:
            value = self.value(schema, level + 1)
        except SchemaTooLarge:
            raise
        except UnusableSchema as problem:
            self.unusable.add(str(problem))
            return self._any()
        finally:
            self._leading = leading
        return self._shaped(value, self._shape(value))


def _without(schema: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in schema.items() if k != key}


def _size(schema: Any) -> int:
    parts = schema.values() if isinstance(schema, Mapping) else ()
    return sum(len(part) for part in parts if isinstance(part, list | Mapping))


def _listed_in(schema: Mapping[str, Any], key: str) -> list[Any]:
    found = schema.get(key)
    return found if isinstance(found, list) else []


def _lists(schema: Any) -> bool:
    """Whether it is one of some constants."""
    found = isinstance(schema, Mapping) and "$ref" not in schema
    return found and ("const" in schema or "enum" in schema)
