"""Parses and formats Java's .properties files, and references to secrets in their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kctl.errors import UsageError

# Parses and formats Java's .properties files: comments, separators, escapes, continuation lines.


_SIMPLE_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def decode_properties(data: bytes) -> str:
    """Decode a file as UTF-8 if it is valid UTF-8, else as ISO 8859-1, Java's encoding."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def parse_properties(text: str) -> dict[str, str]:
    """Return the names and values of a file; the last value of a name counts.  java.util.Properties.load.

    Raises ValueError with the line number for a malformed \\u escape, and for NUL, which shows that it is another file.
    """
    parsed: dict[str, str] = {}
    for number, line in _logical_lines(text):
        if "\0" in line:
            raise ValueError(f"line {number}: a NUL character, which no file of properties has")
        name, value = _split(line)
        try:
            parsed[_unescape(name)] = _unescape(value)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return parsed


def format_properties(properties: Mapping[str, str]) -> str:
    """Return a file that `parse_properties` reads back as the same names and values."""
    return "".join(f"{_escape(name, in_name=True)}={_escape(value)}\n" for name, value in properties.items())


def _natural_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines joined where a backslash ends them, each with the number of its first line; no comments, no blank
    lines.
    """
    joined = ""
    first = 0
    for number, natural in enumerate(_natural_lines(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        if _continues(line):
            joined += line[:-1]
            continue
        yield first, joined + line
        joined = ""
    if joined:
        yield first, joined


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Return the name and value, still escaped.  The first unescaped '=', ':' or blank ends the name."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    characters: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character != "\\":
            characters.append(character)
            position += 1
            continue
        escaped = text[position + 1 : position + 2]
        if escaped == "u":
            characters.append(_code_unit(text[position + 2 : position + 6]))
            position += 6
        else:
            characters.append(_SIMPLE_ESCAPES.get(escaped, escaped))
            position += 2
    # Two escaped surrogates are one character.
    return "".join(characters).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _code_unit(digits: str) -> str:
    if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ValueError(f"malformed \\u escape '\\u{digits}'")
    return chr(int(digits, 16))


def _escape(text: str, *, in_name: bool = False) -> str:
    special = "\\=:#! " if in_name else "\\"
    escaped = "".join(
        f"\\{character}" if character in special else _CONTROL_ESCAPES.get(character, character) for character in text
    )
    return "\\" + escaped if escaped.startswith(" ") else escaped


_CONTROL_ESCAPES = {"\0": "\\u0000"} | {character: f"\\{letter}" for letter, character in _SIMPLE_ESCAPES.items()}


# References in values of client properties to secrets that are kept elsewhere, in the notation of Kafka.
#
#     ${env:KAFKA_PASSWORD}                 an environment variable (KIP-887, EnvVarConfigProvider)
#     ${file:/run/secrets/kafka.properties:password}   a property in a properties file (KIP-297, FileConfigProvider)
#     ${directory:/run/secrets:password}    the contents of a file (KIP-421, DirectoryConfigProvider)
#
# Unlike in Kafka, a reference that cannot be resolved is an error and does not remain in the value. Error texts
# contain no values.
#
# Pure: `resolve` gets the functions that read.


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
    """Return whether any part of the value is a reference."""
    return _REFERENCE.search(value) is not None


def is_reference(value: str) -> bool:
    """Return whether the whole value is one reference, which contains no secret."""
    return _ONE.fullmatch(value) is not None


def files_of(value: str) -> list[str]:
    """Return the files that the references in a value name."""
    paths = []
    for kind, place in _REFERENCE.findall(value):
        folder, colon, name = place.rpartition(":")
        if kind == "directory" and colon:
            paths.append(f"{folder}/{name}")
        elif kind == "file" and colon:
            paths.append(folder)
    return paths


def resolve(name: str, value: str, readers: Readers) -> str:
    """Return the value of a property with all references replaced.  Raises UsageError with the reference."""

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
