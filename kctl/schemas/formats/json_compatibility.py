"""Whether values of one JSON Schema are valid for another one: the rules and names of Confluent's registry.  Pure.

Compared is what changed from the schema that wrote (`original`) to the one that reads (`update`); each change has a
name, and those in `json_parts` are tolerated.  Of no library: none compares schemas and is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kctl.schemas.formats.json_parts import compare_numbers, describe, is_compatible
from kctl.schemas.formats.json_schema import Node, Part, followed, matcher_of, part_of
from kctl.schemas.formats.matching import largest_matching
from kctl.schemas.formats.parsed import Budget, Difference

_SCALAR_LIMITS = {
    "string": (("maxLength", "MAX_LENGTH"), ("minLength", "MIN_LENGTH")),
    "number": (
        ("maximum", "MAXIMUM"),
        ("minimum", "MINIMUM"),
        ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
        ("exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
    ),
    "object": (("maxProperties", "MAX_PROPERTIES"), ("minProperties", "MIN_PROPERTIES")),
    "array": (
        ("maxItems", "MAX_ITEMS"),
        ("minItems", "MIN_ITEMS"),
        ("maxContains", "MAX_CONTAINS"),
        ("minContains", "MIN_CONTAINS"),
    ),
}
_PATTERN_CHARACTERS_PER_STEP = 10
_PLACES_PER_STEP = 200
"""How much work with a pattern counts as one comparison, about 0.2 ms."""
Change = tuple[str, str]
"""The name of a change, and the path of the keyword."""


def compare_json(reader: Node, writer: Node) -> list[Difference]:
    """Return what prevents that values of `writer` are valid for `reader`.  Raises InvalidSchema."""
    comparison = _Comparison()
    comparison.compare(writer, reader)
    found = [change for change in dict.fromkeys(comparison.changes) if not is_compatible(change[0])]
    return [Difference(name, describe(name, path)) for name, path in found]


class _Comparison:
    """Collects changes.  A pair that is being compared counts as equal, for schemas that refer to themselves."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._path: list[str] = []
        self._budget = Budget()
        self._open: set[tuple[int, int]] = set()

    @contextmanager
    def _at(self, *names: str | int) -> Iterator[None]:
        self._path += map(str, names)
        yield
        del self._path[len(self._path) - len(names) :]

    def _add(self, name: str, *keywords: str) -> None:
        self.changes.append((name, "#/" + "/".join((*self._path, *keywords))))

    def _try(self, original: Node, update: Node) -> list[Change] | None:
        """Return the changes between two schemas; None if they are not compatible."""
        before, self.changes = self.changes, []
        self.compare(original, update)
        changes, self.changes = self.changes, before
        return changes if all(is_compatible(name) for name, _ in changes) else None

    def compare(self, original: Node | None, update: Node | None) -> None:
        self._budget.spend()
        if original is None or update is None:
            if original is not None:
                self._add("SCHEMA_REMOVED")
            elif update is not None:
                self._add("SCHEMA_ADDED")
            return
        original, update = followed(original), followed(update)
        pair = (id(original.content), id(update.content))
        if pair in self._open:
            return
        self._open.add(pair)
        old = original.content if isinstance(original.content, Part) else part_of(original)
        new = update.content if isinstance(update.content, Part) else part_of(update)
        self._compare_parts(old, new, original, update)
        self._open.discard(pair)

    def _compare_parts(self, old: Part, new: Part, original: Node, update: Node) -> None:
        if not old.is_combined and new.is_combined and self._is_extended(old, new, original):
            return
        if old.is_combined and not new.is_combined and self._is_narrowed(old, new, update):
            return
        if old.is_combined and new.is_combined:
            self._compare_combined(old, new)
        elif old.kind != new.kind:
            if old.kind != "false" and new.kind != "empty":
                self._add("TYPE_CHANGED")
        else:
            self._compare_same_kind(old, new)

    def _is_extended(self, old: Part, new: Part, original: Node) -> bool:
        """Return whether one of the combined schemas is that of before."""
        if len(new.nodes) > 1 and new.kind == "allOf":
            return False
        for node in new.nodes:
            changes = self._try(original, node)
            if changes is not None:
                self.changes += changes
                if len(new.nodes) > 1:
                    self._add("SUM_TYPE_EXTENDED")
                return True
        return False

    def _is_narrowed(self, old: Part, new: Part, update: Node) -> bool:
        """Return whether the schema is one of those that were combined."""
        if len(old.nodes) > 1 and old.kind != "allOf":
            return False
        for node in old.nodes:
            changes = self._try(node, update)
            if changes is not None:
                self.changes += changes
                if len(old.nodes) > 1:
                    self._add("PRODUCT_TYPE_NARROWED")
                return True
        return False

    def _compare_combined(self, old: Part, new: Part) -> None:
        if old.kind != new.kind:
            is_extended = (
                new.kind == "anyOf"
                or (len(old.nodes) == 1 and (len(new.nodes) == 1 or new.kind == "oneOf"))
                or (len(new.nodes) == 1 and old.kind == "allOf")
            )
            self._add("COMBINED_TYPE_EXTENDED" if is_extended else "COMBINED_TYPE_CHANGED")
            if not is_extended:
                return
        if len(old.nodes) < len(new.nodes):
            self._add("PRODUCT_TYPE_EXTENDED" if new.kind == "allOf" else "SUM_TYPE_EXTENDED")
        elif len(old.nodes) > len(new.nodes):
            self._add("PRODUCT_TYPE_NARROWED" if old.kind == "allOf" else "SUM_TYPE_NARROWED")
        edges: dict[int, dict[int, list[Change]]] = {}
        for index, original in enumerate(old.nodes):
            with self._at(old.kind, index):
                tried = ((number, self._try(original, update)) for number, update in enumerate(new.nodes))
                edges[index] = {number: changes for number, changes in tried if changes is not None}
        matching = largest_matching({index: list(targets) for index, targets in edges.items()})
        for index, number in matching.items():
            self.changes += edges[index][number]
        if len(matching) < min(len(old.nodes), len(new.nodes)):
            self._add("COMBINED_TYPE_SUBSCHEMAS_CHANGED")

    def _compare_same_kind(self, old: Part, new: Part) -> None:
        for keyword, name in _SCALAR_LIMITS.get(old.kind, ()):
            change = compare_numbers(old.content.get(keyword), new.content.get(keyword))
            if change:
                self._add(f"{name}_{change}", keyword)
        match old.kind:
            case "string":
                self._compare_pattern(old, new)
            case "number":
                self._compare_number(old, new)
            case "enum":
                self._compare_enum(old, new)
            case "const":
                if old.content["const"] != new.content["const"]:
                    self._add("ENUM_ARRAY_CHANGED", "const")
            case "not":
                is_narrowed = self._try(new.nodes[0], old.nodes[0]) is not None
                self._add("NOT_TYPE_NARROWED" if is_narrowed else "NOT_TYPE_EXTENDED", "not")
            case "object":
                self._compare_object(old, new)
            case "array":
                self._compare_array(old, new)

    def _compare_pattern(self, old: Part, new: Part) -> None:
        before, after = old.content.get("pattern"), new.content.get("pattern")
        if before != after:
            change = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
            self._add(f"PATTERN_{change}", "pattern")

    def _compare_number(self, old: Part, new: Part) -> None:
        before, after = old.content.get("multipleOf"), new.content.get("multipleOf")
        if before != after:
            if before is None or after is None:
                change = "ADDED" if before is None else "REMOVED"
            elif after % before == 0:
                change = "EXPANDED"
            else:
                change = "REDUCED" if before % after == 0 else "CHANGED"
            self._add(f"MULTIPLE_OF_{change}", "multipleOf")
        if old.content.get("type") != new.content.get("type"):
            is_extended = old.content.get("type") == "integer"
            self._add("TYPE_EXTENDED" if is_extended else "TYPE_NARROWED")

    def _compare_enum(self, old: Part, new: Part) -> None:
        before, after = old.content["enum"], new.content["enum"]
        lost = [value for value in before if value not in after]
        added = [value for value in after if value not in before]
        if lost or added:
            change = "EXTENDED" if not lost else "NARROWED" if not added else "CHANGED"
            self._add(f"ENUM_ARRAY_{change}", "enum")

    def _compare_object(self, old: Part, new: Part) -> None:
        self._compare_required(old, new)
        before, after = old.content.get("properties") or {}, new.content.get("properties") or {}
        for name in dict.fromkeys((*before, *after)):
            with self._at("properties", name):
                if name not in after:
                    self._removed_property(Node(before[name], old.resolver), new, name)
                elif name not in before:
                    self._added_property(Node(after[name], new.resolver), old, new, name)
                else:
                    self.compare(Node(before[name], old.resolver), Node(after[name], new.resolver))
        self._compare_dependencies(old, new)
        self._compare_rest(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES")
        self._compare_unevaluated(old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")

    def _compare_required(self, old: Part, new: Part) -> None:
        before, after = old.content.get("required") or (), new.content.get("required") or ()
        for name in old.content.get("properties") or {}:
            changed = (new.content.get("properties") or {}).get(name)
            if changed is None or (name in before) == (name in after):
                continue
            change = "REMOVED" if name in before else "WITH_DEFAULT_ADDED" if _has_default(changed) else "ADDED"
            self._add(f"REQUIRED_ATTRIBUTE_{change}", "required", name)

    def _removed_property(self, original: Node, new: Part, name: str) -> None:
        if _is_open(new, "additionalProperties", "unevaluatedProperties"):
            self._add("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL")
        elif (rest := _rest_for(new, name, self._budget)) is not None:
            self._compare_with_rest(original, rest, "PROPERTY_REMOVED")
        elif original.content is False:
            self._add("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")
        else:
            self._add("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")

    def _added_property(self, update: Node, old: Part, new: Part, name: str) -> None:
        is_required = name in (new.content.get("required") or ())
        need = "OPTIONAL" if not is_required else "REQUIRED"
        default = "_WITH_DEFAULT" if is_required and _has_default(update.content) else ""
        if _is_open(old, "additionalProperties", "unevaluatedProperties"):
            if part_of(followed(update)).kind == "empty":
                self._add("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")
            else:
                self._add(f"{need}_PROPERTY{default}_ADDED_TO_OPEN_CONTENT_MODEL")
            return
        rest = _rest_for(old, name, self._budget)
        if rest is not None:
            self._compare_with_rest(rest, update, "PROPERTY_ADDED")
        self._add(f"{need}_PROPERTY{default}_ADDED_TO_UNOPEN_CONTENT_MODEL")

    def _compare_with_rest(self, original: Node, update: Node, name: str) -> None:
        changes = self._try(original, update)
        self._add(f"{name}_{'IS' if changes is not None else 'NOT'}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")

    def _compare_dependencies(self, old: Part, new: Part) -> None:
        before, after = old.content.get("dependencies") or {}, new.content.get("dependencies") or {}
        for name in dict.fromkeys((*before, *after)):
            lost, gained = before.get(name), after.get(name)
            with self._at("dependencies", name):
                kind = "ARRAY" if isinstance(lost if gained is None else gained, list) else "SCHEMA"
                if lost is None or gained is None:
                    self._add(f"DEPENDENCY_{kind}_{'ADDED' if lost is None else 'REMOVED'}")
                elif isinstance(lost, list) and isinstance(gained, list):
                    if set(lost) != set(gained):
                        change = "NARROWED" if set(lost) > set(gained) else "CHANGED"
                        self._add(f"DEPENDENCY_ARRAY_{'EXTENDED' if set(gained) > set(lost) else change}")
                else:
                    self.compare(Node(lost, old.resolver), Node(gained, new.resolver))

    def _compare_rest(self, old: Part, new: Part, keyword: str, name: str) -> None:
        before, after = old.content.get(keyword, True), new.content.get(keyword, True)
        with self._at(keyword):
            if (before is False) != (after is False):
                self._add(f"{name}_{'ADDED' if before is False else 'REMOVED'}")
            elif before is True and after is not True:
                self._add(f"{name}_NARROWED")
            elif after is True and before is not True:
                self._add(f"{name}_EXTENDED")
            elif before is not False and before is not True:
                self.compare(Node(before, old.resolver), Node(after, new.resolver))

    def _compare_unevaluated(self, old: Part, new: Part, keyword: str, name: str) -> None:
        if keyword in old.content or keyword in new.content:
            self._compare_rest(old, new, keyword, name)

    def _compare_array(self, old: Part, new: Part) -> None:
        before, after = bool(old.content.get("uniqueItems")), bool(new.content.get("uniqueItems"))
        if before != after:
            self._add("UNIQUE_ITEMS_REMOVED" if before else "UNIQUE_ITEMS_ADDED", "uniqueItems")
        with self._at("items"):
            self.compare(_all_items(old), _all_items(new))
        originals, updates = _listed_items(old), _listed_items(new)
        for index in range(max(len(originals), len(updates))):
            with self._at("items", index):
                if index >= len(updates):
                    self._removed_item(originals[index], new)
                elif index >= len(originals):
                    self._added_item(updates[index], old)
                else:
                    self.compare(originals[index], updates[index])
        self._compare_rest(old, new, "additionalItems", "ADDITIONAL_ITEMS")
        self._compare_unevaluated(old, new, "unevaluatedItems", "UNEVALUATED_ITEMS")

    def _removed_item(self, original: Node, new: Part) -> None:
        if _is_open(new, "additionalItems", "unevaluatedItems"):
            self._add("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL")
        elif (rest := _rest(new, "additionalItems", "unevaluatedItems")) is not None:
            self._compare_with_rest(original, rest, "ITEM_REMOVED")
        elif original.content is False:
            self._add("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")
        else:
            self._add("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")

    def _added_item(self, update: Node, old: Part) -> None:
        if _is_open(old, "additionalItems", "unevaluatedItems"):
            is_empty = part_of(followed(update)).kind == "empty"
            self._add(f"ITEM_{'WITH_EMPTY_SCHEMA_' if is_empty else ''}ADDED_TO_OPEN_CONTENT_MODEL")
        elif (rest := _rest(old, "additionalItems", "unevaluatedItems")) is not None:
            self._compare_with_rest(rest, update, "ITEM_ADDED")
        else:
            self._add("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _is_open(part: Part, additional: str, unevaluated: str) -> bool:
    """Return whether other properties or items may have any value."""
    if part.content.get("patternProperties") and additional == "additionalProperties":
        return False
    is_any = part.content.get(additional, True) is True
    return is_any and part.content.get(unevaluated, True) in (True, {})


def _rest(part: Part, additional: str, unevaluated: str) -> Node | None:
    """Return the schema of other properties or items."""
    for keyword in (additional, unevaluated):
        if isinstance(part.content.get(keyword), dict):
            return part.node(keyword)
    return None


def _rest_for(part: Part, name: str, budget: Budget) -> Node | None:
    """Return the schema of a property that is not listed.  Raises InvalidSchema."""
    for pattern, schema in (part.content.get("patternProperties") or {}).items():
        budget.spend(1 + len(pattern) // _PATTERN_CHARACTERS_PER_STEP)
        matcher = matcher_of(pattern, name)
        budget.spend(matcher.work_max(name) // _PLACES_PER_STEP)
        if matcher.matches(name):
            return Node(schema, part.resolver)
    return _rest(part, "additionalProperties", "unevaluatedProperties")


def _all_items(part: Part) -> Node | None:
    items = part.content.get("items")
    return Node(items, part.resolver) if isinstance(items, dict | bool) and "prefixItems" not in part.content else None


def _listed_items(part: Part) -> list[Node]:
    listed = part.content.get("prefixItems", part.content.get("items"))
    return [Node(item, part.resolver) for item in listed] if isinstance(listed, list) else []
