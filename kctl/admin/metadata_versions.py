"""The levels of the feature metadata.version and their names (KIP-778; Kafka's MetadataVersion).  Pure."""

from __future__ import annotations

from kctl.errors import UsageError

METADATA_VERSION = "metadata.version"

_NAMES = (
    *("3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0"),
    *("3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
    *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0"),
)
"""The first is level 1."""


def metadata_version_name(level: int) -> str | None:
    """The name of a level, such as 3.9-IV0 for 21; None if it is newer than these."""
    return _NAMES[level - 1] if 0 < level <= len(_NAMES) else None


def metadata_version_level(name: str) -> int:
    """The level of `3.9-IV0`, of `3.9` (its last) or of `21`.  Raises UsageError."""
    if name.isascii() and name.isdigit() and 0 < len(name) <= 4:
        return int(name)
    found = [level for level, one in enumerate(_NAMES, start=1) if one == name or one.startswith(f"{name}-")]
    if not found:
        raise UsageError(f"'{name}' is not a metadata version; use a level, or a name from {_NAMES[0]} to {_NAMES[-1]}")
    return found[-1]
