"""Reads the secrets to which properties and documents refer."""

from __future__ import annotations

import os
from pathlib import Path

from kctl.config.properties import decode_properties, parse_properties
from kctl.config.references import Readers, resolve
from kctl.input_files import read_regular


def resolved(name: str, value: str) -> str:
    """The value of the property or field `name`, with secrets instead of references to them.  Raises UsageError."""
    return resolve(name, value, Readers(os.environ.__getitem__, _property_of_file, _contents))


def _property_of_file(path: str, name: str) -> str:
    return parse_properties(decode_properties(read_regular(path)))[name]


def _contents(folder: str, name: str) -> str:
    if name in {"", ".", ".."} or "/" in name:
        raise KeyError(name)
    return read_regular(str(Path(folder) / name)).decode().removesuffix("\n")
