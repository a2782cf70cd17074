"""The work that the password of a key store demands: parameters of key derivations, read from its encoding.

OpenSSL derives keys with the lock of the interpreter held.  A file with a billion iterations would stop the whole
process, also when it is read in a thread.  Java's PKCS12KeyStore has a bound too (MAX_ITERATION_COUNT).

Parameters that are encrypted themselves, such as those of a key inside encrypted content, are not found.

RFC 8018 (PBES1, PBES2), RFC 7914 (scrypt), RFC 7292 (PKCS12).  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from kctl.limits import KEY_DERIVATION_ITERATIONS_MAX, KEY_DERIVATION_SCRYPT_MAX

_INTEGER, _OCTETS, _OCTETS_IN_PARTS, _SEQUENCE = 0x02, 0x04, 0x24, 0x30
_CONSTRUCTED, _LONG_TAG, _INDEFINITE = 0x20, 0x1F, 0x80
_DEPTH_MAX = 40


class _Element(NamedTuple):
    """An element of BER, of which DER is a part."""

    tag: int
    content: bytes
    children: tuple[_Element, ...]
    """Of a constructed element, and of octets that contain a sequence."""


def derivation_problem(data: bytes) -> str | None:
    """Why the keys of this PKCS8 or PKCS12 structure must not be derived; None if they may be."""
    try:
        elements, _ = _elements(data, 0, len(data), 0)
    except (ValueError, IndexError):
        return "is not encoded as PKCS8 or PKCS12 prescribe"
    for numbers in _parameters(elements):
        # PBKDF2 and PKCS12 have iterations, and perhaps the size of the key; scrypt has N, r, p, and perhaps that size.
        if len(numbers) >= 3:
            if min(numbers) < 1 or numbers[0] * numbers[1] * numbers[2] > KEY_DERIVATION_SCRYPT_MAX:
                return f"demands more work of scrypt than N * r * p = {KEY_DERIVATION_SCRYPT_MAX}"
        elif numbers[0] > KEY_DERIVATION_ITERATIONS_MAX:
            return f"demands more than {KEY_DERIVATION_ITERATIONS_MAX} iterations of its password"
    return None


def _parameters(elements: tuple[_Element, ...]) -> Iterator[list[int]]:
    """The integers that follow a salt, from the whole tree."""
    numbers: list[int] | None = None
    for element in elements:
        if element.tag in {_OCTETS, _OCTETS_IN_PARTS}:
            if numbers:
                yield numbers
            numbers = []
        elif element.tag == _INTEGER and numbers is not None:
            numbers.append(int.from_bytes(element.content, signed=True))
        yield from _parameters(element.children)
    if numbers:
        yield numbers


def _elements(data: bytes, position: int, end: int, depth: int) -> tuple[tuple[_Element, ...], int]:
    """The elements up to `end` or to a mark of the end, and the position after them.

    Raises ValueError and IndexError for other data.
    """
    if depth > _DEPTH_MAX:
        raise ValueError("too many levels")
    elements: list[_Element] = []
    while position < end:
        tag = data[position]
        position += 1
        if tag & _LONG_TAG == _LONG_TAG:
            while data[position] & 0x80:
                position += 1
            position += 1
        size = data[position]
        position += 1
        if tag == size == 0:
            break
        children: tuple[_Element, ...] = ()
        if size == _INDEFINITE:
            if not tag & _CONSTRUCTED:
                raise ValueError("an indefinite length")
            children, position = _elements(data, position, end, depth + 1)
            content = b""
        else:
            if size > _INDEFINITE:
                size_bytes = size & 0x7F
                size = int.from_bytes(data[position : position + size_bytes])
                position += size_bytes
            if position + size > end:
                raise ValueError("a length beyond the end")
            content = data[position : position + size]
            position += size
            if tag & _CONSTRUCTED:
                children, _ = _elements(content, 0, size, depth + 1)
        if tag == _OCTETS_IN_PARTS:
            content = b"".join(child.content for child in children)
        if tag in {_OCTETS, _OCTETS_IN_PARTS} and content[:1] == bytes([_SEQUENCE]):
            with suppress(ValueError, IndexError):
                children, _ = _elements(content, 0, len(content), depth + 1)
        elements.append(_Element(tag, content, children))
        if depth == 0:
            break  # Whatever follows is not read.
    return tuple(elements), position
