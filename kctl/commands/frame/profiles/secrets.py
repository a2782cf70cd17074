"""Reads properties files and secrets that the user names."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from kctl.config.properties import Readers, decode_properties, parse_properties, resolve
from kctl.errors import UsageError
from kctl.system.user_files import read_input, read_regular

# Properties files that the user names, and whether others can read the secrets in them.


_SECRET = re.compile(
    r"password$|secret|jaas\.config$|keystore\.key$|master\.key$|user\.info$|bearer\.auth\.token$", re.IGNORECASE
)
_KEYSTORE = re.compile(r"ssl\.keystore\.location$", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Return whether a property of that name has a secret as its value."""
    return bool(_SECRET.search(name))


def read_properties(path: str) -> dict[str, str]:
    """Return the properties in a file.  Raises UsageError."""
    try:
        return parse_properties(decode_properties(read_input(path)))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def exposed_files(path: str, properties: Mapping[str, str], more: Sequence[str] = ()) -> list[str]:
    """Return the files with secrets that every user of the machine can read.

    These may be the properties file itself, the keystores that it names, and `more` files with secrets.
    """
    files = [path] if any(value.strip() and _SECRET.search(name) for name, value in properties.items()) else []
    files += [value for name, value in properties.items() if value and _KEYSTORE.search(name)]
    return [file for file in dict.fromkeys((*files, *more)) if _is_readable_by_all(file)]


def _is_readable_by_all(path: str) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_IROTH)


# Reads the secrets to which properties and documents refer.


def resolved(name: str, value: str) -> str:
    """Return the value of the property or field `name`, with secrets instead of references to them.

    Raises UsageError.
    """
    return resolve(name, value, Readers(os.environ.__getitem__, _property_of_file, _contents))


def _property_of_file(path: str, name: str) -> str:
    return parse_properties(decode_properties(read_regular(path)))[name]


def _contents(folder: str, name: str) -> str:
    if name in {"", ".", ".."} or "/" in name:
        raise KeyError(name)
    return read_regular(str(Path(folder) / name)).decode().removesuffix("\n")
