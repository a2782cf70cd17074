"""JSON Schemas: parsing, and the parts that a comparison sees.  Pure.

A schema is what its keywords together require: `{"type": "string", "enum": [...]}` is a string and an enumeration,
and is compared as `allOf` both, as Confluent's library does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from jsonschema import exceptions, validators
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from kctl.regex.automaton import Matcher
from kctl.regex.syntax import Alphabet, InvalidRegex
from kctl.schemas.formats.parsed import InvalidSchema, ParsedSchema

_KEYWORDS = {
    "object": (
        *("properties", "required", "additionalProperties", "minProperties", "maxProperties", "dependencies"),
        *("patternProperties", "unevaluatedProperties"),
    ),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "unevaluatedItems"),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_CRITERIA = ("allOf", "anyOf", "oneOf")
_CODE_UNIT = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
"""An escape of ECMA 262; the group is the number of a character."""


class Node(NamedTuple):
    """A schema within a document, and what resolves its references."""

    content: Any
    resolver: Any


class Part(NamedTuple):
    """What one group of keywords of a schema requires."""

    kind: str
    """empty, false, object, array, string, number, boolean, null, enum, const, not, or a criterion such as anyOf."""
    content: Mapping[str, Any]
    nodes: tuple[Node, ...] = ()
    """Of a criterion or `not`: the schemas that it combines."""
    resolver: Any = None

    @property
    def is_combined(self) -> bool:
        """Whether it combines schemas by allOf, anyOf or oneOf."""
        return self.kind in _CRITERIA

    def node(self, name: str) -> Node | None:
        """Return the schema that is the value of a keyword; None without one."""
        return Node(self.content[name], self.resolver) if name in self.content else None


def parse_json_schema(text: str, used: Mapping[str, str], *, normalizes: bool) -> ParsedSchema:
    """Return a schema; `used` are the texts of those that it uses, by the names of the references.

    Raises InvalidSchema.
    """
    try:
        document = json.loads(text)
        kind: Any = validators.validator_for(document, default=validators.Draft7Validator)  # as Confluent's
        kind.check_schema(document)
        # A registry without a function that retrieves: nothing is fetched from addresses in a schema.
        registry = Registry().with_resources(
            (name, Resource.from_contents(json.loads(other), default_specification=DRAFT7))
            for name, other in used.items()
        )
        root = Resource.from_contents(document, default_specification=DRAFT7)
        node = Node(document, registry.resolver_with_root(root))
        _check_references(node, set())
        _check_patterns(document)
        canonical = json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=normalizes)
        return ParsedSchema("JSON", canonical, node)
    except exceptions.SchemaError as error:
        raise InvalidSchema(f"{error.message} at {error.json_path}"[:500]) from None
    except Unresolvable as error:
        raise InvalidSchema(f"{error.ref} is not among its references") from None
    except RecursionError:
        raise InvalidSchema("it is nested too deeply") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidSchema(f"{error}".splitlines()[0][:500]) from None


def _check_references(node: Node, seen: set[int]) -> None:
    """Look up all references, also those of schemas that are referred to.  Raises Unresolvable."""
    if id(node.content) in seen:
        return
    seen.add(id(node.content))
    children: Iterable[Any] = ()
    if isinstance(node.content, dict):
        if isinstance(node.content.get("$ref"), str):
            _check_references(followed(node), seen)
        children = [
            value for name, value in node.content.items() if name not in {"enum", "const", "default", "examples"}
        ]
    elif isinstance(node.content, list):
        children = node.content
    for child in children:
        if isinstance(child, dict | list):
            _check_references(Node(child, node.resolver), seen)


def matcher_of(pattern: str, name: str) -> Matcher:
    """Return what matches this name of a property with a pattern.  Raises InvalidSchema.

    The time of Python's `re` can grow exponentially with the name.  ECMA 262, whose expressions the patterns are, has
    other names for characters than RE2, and look-around and back references, which RE2 lacks.
    """
    try:
        return Matcher(_CODE_UNIT.sub(_of_re2, pattern), Alphabet(name), is_whole=False)
    except InvalidRegex as error:
        raise InvalidSchema(
            f"the pattern {pattern[:100]!r} of patternProperties is not valid: {error}; "
            "look-around and back references are not supported"
        ) from None


def _of_re2(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else f"\\x{{{match[1]}}}"


def _check_patterns(document: Any) -> None:
    """Parse the patterns of properties.  Raises InvalidSchema."""
    left = [document]
    while left:
        value = left.pop()
        if isinstance(value, dict) and isinstance(value.get("patternProperties"), dict):
            for pattern in value["patternProperties"]:
                matcher_of(pattern, "")
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def followed(node: Node) -> Node:
    """Return the schema that a `$ref` names, or the node itself.  Raises InvalidSchema."""
    hops = 0
    while isinstance(node.content, dict) and isinstance(node.content.get("$ref"), str):
        resolved = node.resolver.lookup(node.content["$ref"])
        node = Node(resolved.contents, resolved.resolver)
        hops += 1
        if hops > 100:
            raise InvalidSchema("its references form a circle")
    return node


def part_of(node: Node) -> Part:
    """Return what a schema requires, as one part."""
    content = node.content
    if content is False:
        return Part("false", {})
    if not isinstance(content, dict):
        return Part("empty", {})
    parts = list(_parts(content, node))
    if not parts:
        return Part("empty", content)
    if len(parts) == 1:
        return parts[0]
    return Part("allOf", content, tuple(Node(part, node.resolver) for part in parts))


def _parts(content: dict[str, Any], node: Node) -> Iterable[Part]:
    if "enum" in content:
        yield Part("enum", content)
    if "const" in content:
        yield Part("const", content)
    for criterion in _CRITERIA:
        if isinstance(content.get(criterion), list):
            yield Part(criterion, content, tuple(Node(sub, node.resolver) for sub in content[criterion]))
    if "not" in content:
        yield Part("not", content, (Node(content["not"], node.resolver),))
    match content.get("type"):
        case str(name):
            yield _typed(name, content, node)
        case [str(name)]:
            yield _typed(name, content, node)
        case list(names):
            yield Part("anyOf", content, tuple(Node(_typed(name, content, node), node.resolver) for name in names))
        case _ if "enum" not in content and "const" not in content:
            for name, keywords in _KEYWORDS.items():
                if any(keyword in content for keyword in keywords):
                    yield _typed(name, content, node)


def _typed(name: str, content: dict[str, Any], node: Node) -> Part:
    kind = "number" if name == "integer" else name
    named = {**content, "type": name}
    return Part(kind, named, resolver=node.resolver)
