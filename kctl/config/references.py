"""References in values of client properties to secrets that are kept elsewhere, in the notation of Kafka.

    ${env:KAFKA_PASSWORD}                 an environment variable (KIP-887, EnvVarConfigProvider)
    ${file:/run/secrets/kafka.properties:password}   a property in a properties file (KIP-297, FileConfigProvider)
    ${directory:/run/secrets:password}    the contents of a file (KIP-421, DirectoryConfigProvider)

Unlike in Kafka, a reference that cannot be resolved is an error and does not remain in the value.  Error texts contain
no values.

Pure: `resolve` gets the functions that read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from kctl.errors import UsageError

_REFERENCE = re.compile(r"\$\{([A-Za-z]+):([^{}]*)\}")
_ONE = re.compile(r"(?:\$\{[A-Za-z]+:[^{}]*\})")
_JAAS = "sasl.jaas.config"
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
"""In a login module the reference is inside quotes, which a line break would end."""


class Readers(NamedTuple):
    """Functions that read variables and files.  Each raises KeyError, or OSError and ValueError for files."""

    variable: Callable[[str], str]
    property_of_file: Callable[[str, str], str]
    contents: Callable[[str, str], str]


def has_reference(value: str) -> bool:
    """Whether any part of the value is a reference."""
    return _REFERENCE.search(value) is not None


def is_reference(value: str) -> bool:
    """Whether the whole value is one reference, which contains no secret."""
    return _ONE.fullmatch(value) is not None


def files_of(value: str) -> list[str]:
    """The files that the references in a value name."""
    found = []
    for kind, place in _REFERENCE.findall(value):
        folder, colon, name = place.rpartition(":")
        if kind == "directory" and colon:
            found.append(f"{folder}/{name}")
        elif kind == "file" and colon:
            found.append(folder)
    return found


def resolve(name: str, value: str, readers: Readers) -> str:
    """The value of a property with all references replaced.  Raises UsageError with the reference."""

    def replace(match: re.Match[str]) -> str:
        secret = _read(name, match, readers)
        return secret.translate(_ESCAPED) if name.endswith(_JAAS) else secret

    return _REFERENCE.sub(replace, value)


def _read(name: str, match: re.Match[str], readers: Readers) -> str:
    kind, place = match.groups()
    first, colon, last = place.rpartition(":")
    try:
        if kind == "env":
            return readers.variable(place)
        if kind == "file" and colon:
            return readers.property_of_file(first, last)
        if kind == "directory" and colon:
            return readers.contents(first, last)
    except KeyError:
        raise UsageError(f"{name}: {match[0]} does not exist") from None
    except OSError as error:
        raise UsageError(f"{name}: {match[0]} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{name}: the file of {match[0]} is invalid") from None
    raise UsageError(
        f"{name}: {match[0]} is not a reference; use ${{env:NAME}}, ${{file:PATH:KEY}} or ${{directory:PATH:NAME}}"
    )
