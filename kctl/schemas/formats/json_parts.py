"""The names of changes of a JSON Schema: which are compatible, and what they mean.  Pure."""

from __future__ import annotations

from typing import Any

from kctl.schemas.formats.parsed import READER, WRITER

_UPPER = ("MAX_LENGTH", "MAXIMUM", "EXCLUSIVE_MAXIMUM", "MAX_PROPERTIES", "MAX_ITEMS", "MAX_CONTAINS")
_LOWER = ("MIN_LENGTH", "MINIMUM", "EXCLUSIVE_MINIMUM", "MIN_PROPERTIES", "MIN_ITEMS", "MIN_CONTAINS")
_REST = (*("ADDITIONAL_PROPERTIES", "UNEVALUATED_PROPERTIES", "ADDITIONAL_ITEMS", "UNEVALUATED_ITEMS"),)
_COMPATIBLE = frozenset(
    (
        *(f"{name}_{change}" for name in _UPPER for change in ("INCREASED", "REMOVED")),
        *(f"{name}_{change}" for name in _LOWER for change in ("DECREASED", "REMOVED")),
        *(f"{name}_{change}" for name in _REST for change in ("ADDED", "EXTENDED")),
        *("SCHEMA_REMOVED", "TYPE_EXTENDED", "PATTERN_REMOVED", "MULTIPLE_OF_REDUCED", "MULTIPLE_OF_REMOVED"),
        *("REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", "REQUIRED_ATTRIBUTE_REMOVED", "UNIQUE_ITEMS_REMOVED"),
        *("DEPENDENCY_ARRAY_NARROWED", "DEPENDENCY_ARRAY_REMOVED", "DEPENDENCY_SCHEMA_REMOVED"),
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        *("ENUM_ARRAY_EXTENDED", "COMBINED_TYPE_EXTENDED", "PRODUCT_TYPE_NARROWED", "SUM_TYPE_EXTENDED"),
        "NOT_TYPE_NARROWED",
    )
)
"""Confluent's policy STRICT, its default."""


def is_compatible(name: str) -> bool:
    """Return whether values of before stay valid."""
    return name in _COMPATIBLE


def describe(name: str, path: str) -> str:
    """Return Confluent's sentence about a change that is not compatible."""
    place = f"at path '{path}'"
    match name:
        case "TYPE_CHANGED" | "TYPE_NARROWED" | "COMBINED_TYPE_CHANGED" | "COMBINED_TYPE_SUBSCHEMAS_CHANGED":
            return f"A type {place} is different between the {READER} schema and the {WRITER} schema"
        case "ENUM_ARRAY_CHANGED":
            return f"A type {place} is different between the {READER} schema and the {WRITER} schema"
        case "PATTERN_CHANGED" | "MULTIPLE_OF_CHANGED" | "DEPENDENCY_ARRAY_CHANGED":
            return f"The value {place} is different between the {READER} and {WRITER} schema"
        case "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL":
            return (
                f"The {READER} schema has an unopen content model and has a required property {place} which is missing "
                f"in the {WRITER} schema"
            )
    if name.endswith("NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"):
        if "_REMOVED_" in name:
            return (
                f"A property or item is missing in the {READER} schema but present {place} in the {WRITER} schema and "
                "is not covered by its partially open content model"
            )
        return (
            f"The {READER} schema has a property or item {place} which is missing in the {WRITER} schema and is not "
            "covered by its partially open content model"
        )
    if name.endswith("_ADDED_TO_OPEN_CONTENT_MODEL"):
        return (
            f"The {READER} schema has an open content model and has a property or item {place} which is missing in the "
            f"{WRITER} schema"
        )
    if name.endswith("_REMOVED_FROM_CLOSED_CONTENT_MODEL"):
        return (
            f"The {READER} has a closed content model and is missing a property or item present {place} in the "
            f"{WRITER} schema"
        )
    if name.endswith(("_INCREASED", "_EXPANDED")):
        return f"The value {place} in the {READER} schema is more than its value in the {WRITER} schema"
    if name.endswith("_DECREASED"):
        return f"The value {place} in the {READER} schema is less than its value in the {WRITER} schema"
    if name.endswith("_NARROWED"):
        return f"An array or combined type {place} has fewer elements in the {READER} schema than the {WRITER} schema"
    if name.endswith("_EXTENDED"):
        return f"An array or combined type {place} has more elements in the {READER} schema than the {WRITER} schema"
    return f"The keyword {place} in the {READER} schema is not present in the {WRITER} schema"


def compare_numbers(before: Any, after: Any) -> str | None:
    """Return what changed of a limit: ADDED, REMOVED, INCREASED or DECREASED; None for nothing."""
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return "ADDED" if before is None and after is not None else "REMOVED" if before != after else None
    return None if before == after else "INCREASED" if before < after else "DECREASED"
