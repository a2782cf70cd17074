"""Names of the protocol versions that inter.broker.protocol.version may take, oldest first.

Kafka's ApiVersion (2.8).
"""

from __future__ import annotations

_RELEASES: tuple[tuple[str, int], ...] = (
    ("0.10.0", 2),
    ("0.10.1", 3),
    ("0.10.2", 1),
    ("0.11.0", 3),
    ("1.0", 1),
    ("1.1", 1),
    ("2.0", 2),
    ("2.1", 3),
    ("2.2", 2),
    ("2.3", 2),
    ("2.4", 2),
    ("2.5", 1),
    ("2.6", 1),
    ("2.7", 3),
    ("2.8", 2),
)
"""A release and the number of its steps, which are named IV0, IV1 and so on."""

LATEST_VERSION = "2.8-IV1"


def _names() -> tuple[str, ...]:
    names = ["0.8.0", "0.8.1", "0.8.2", "0.9.0"]
    for release, steps in _RELEASES:
        names += [f"{release}-IV{step}" for step in range(steps)]
        names.append(release)
    return tuple(names)


VERSION_NAMES = _names()
"""The part of a version before a patch number; a release without a step means its last step."""


def significant(version: str) -> str:
    """Return the significant part of a version, without the patch release and the rest.  ApiVersion.apply (2.8)."""
    return ".".join(version.split(".")[: 3 if version.startswith("0.") else 2])


def version_rank(version: str) -> int:
    """Return a number that increases with the version; a release, its last step and its patch releases have the same
    number. Raises ValueError for an unknown version.
    """
    name = significant(version)
    for release, steps in _RELEASES:
        if name == release:
            return VERSION_NAMES.index(f"{release}-IV{steps - 1}")
    return VERSION_NAMES.index(name)


KAFKA_RELEASES = ("0.11", "1.1", "2.0", "2.4", "2.8", "3.9", "4.3")
"""Releases of Apache Kafka, oldest first, whose advertised APIs are known (kctl/server/broker/releases)."""
