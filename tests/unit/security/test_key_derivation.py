"""The work that an encrypted key demands is found in its encoding; structures of RFC 7292, RFC 7914 and RFC 8018."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.security.keystores import KEY_DERIVATION_ITERATIONS_MAX as ITERATIONS_MAX
from kctl.security.keystores import derivation_problem
from tests.rows import for_rows

END = b"\0\0"


def element(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    header = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2)
    return bytes([tag]) + header + content


def integer(number: int) -> bytes:
    return element(0x02, number.to_bytes(number.bit_length() // 8 + 1, signed=True))


def sequence(*parts: bytes) -> bytes:
    return element(0x30, *parts)


def octets(content: bytes) -> bytes:
    return element(0x04, content)


OID = element(0x06, b"\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d")
SALT = octets(b"0123456789abcdef")
CIPHERTEXT = octets(b"0" * 300)


def encrypted_key(*numbers: int) -> bytes:
    """EncryptedPrivateKeyInfo with PBES2."""
    derivation = sequence(OID, sequence(SALT, *map(integer, numbers), sequence(OID, element(0x05))))
    cipher = sequence(OID, octets(b"v" * 16))
    return sequence(sequence(OID, sequence(derivation, cipher)), CIPHERTEXT)


def store(*, key: int, mac: int) -> bytes:
    """PFX with a key in content that is not encrypted, and the MacData."""
    safe = octets(sequence(sequence(OID, element(0xA0, encrypted_key(key)))))
    content = octets(sequence(sequence(OID, element(0xA0, safe))))
    mac_data = sequence(sequence(sequence(OID), octets(b"d" * 32)), SALT, integer(mac))
    return sequence(integer(3), sequence(OID, element(0xA0, content)), mac_data)


@for_rows(
    "encoded",
    [
        encrypted_key(ITERATIONS_MAX),
        encrypted_key(ITERATIONS_MAX, 32),
        encrypted_key(1 << 14, 8, 1),
        encrypted_key(1 << 14, 8, 8, 32),
        store(key=2048, mac=ITERATIONS_MAX),
        encrypted_key(2048) + b"\n",
    ],
)
def test_usual_work_is_permitted(encoded: bytes) -> None:
    assert derivation_problem(encoded) is None


@for_rows(
    "encoded",
    [
        encrypted_key(ITERATIONS_MAX + 1),
        encrypted_key(1 << 31, 32),
        encrypted_key(1 << 4000),
        sequence(sequence(OID, sequence(SALT, integer(ITERATIONS_MAX + 1))), CIPHERTEXT),
        store(key=ITERATIONS_MAX + 1, mac=1),
        store(key=1, mac=ITERATIONS_MAX + 1),
    ],
)
def test_too_many_iterations_are_found(encoded: bytes) -> None:
    assert derivation_problem(encoded) == f"demands more than {ITERATIONS_MAX} iterations of its password"


@pytest.mark.parametrize("numbers", [(1 << 20, 8, 1), (2, 1 << 30, 1), (2, 1, 1 << 30, 32), (-1, -1 << 30, 1)])
def test_too_much_work_of_scrypt_is_found(numbers: tuple[int, ...]) -> None:
    assert derivation_problem(encrypted_key(*numbers)) == "demands more work of scrypt than N * r * p = 1048576"


def test_other_forms_of_encoding_hide_nothing() -> None:
    """BER, which OpenSSL reads as well: indefinite lengths, and octets in parts."""
    key = encrypted_key(ITERATIONS_MAX + 1)
    indefinite = b"\x30\x80" + sequence(OID) + b"\xa0\x80" + key + END + END
    in_parts = sequence(element(0x24, octets(key[:40]), octets(key[40:])))
    indefinite_parts = sequence(b"\x24\x80" + octets(key[:40]) + octets(key[40:]) + END)
    for encoded in (indefinite, in_parts, indefinite_parts, sequence(b"\xbf\x81\x01" + element(0, key)[1:])):
        assert "iterations" in (derivation_problem(encoded) or "")


@pytest.mark.parametrize("encoded", [b"\x30", b"\x30\x84", encrypted_key(1)[:-1], b"\x30\x80" * 1_000, b"\x04\x80"])
def test_damaged_encodings_are_refused(encoded: bytes) -> None:
    assert "is not encoded" in (derivation_problem(encoded) or "")


@given(st.binary(max_size=200))
def test_any_bytes_are_examined_without_an_exception(encoded: bytes) -> None:
    derivation_problem(encoded)
