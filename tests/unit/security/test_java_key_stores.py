"""Stores of Java, as pyjks and keytool write them, whole and damaged."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import jks
import pytest
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, modes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jks import sun_crypto

from kctl.security.java_key_stores import DamagedStore, WrongPassword, decrypt_jceks_key, read_java_key_store
from kctl.security.keystores import KeyStoreError, certificates_of_store, key_pair_of_store
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.rows import for_rows

KEYTOOL = shutil.which("keytool")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("certificates"))


def store(authority: CertificateAuthority, password: str = PASSWORD) -> tuple[bytes, bytes, bytes]:
    """The content of a store with a certificate of an authority and a key, the key as PKCS8, and its certificate."""
    identity = authority.issue("server")
    key = identity.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    own, issuer = (one.public_bytes(Encoding.DER) for one in (identity.certificate, authority.identity.certificate))
    entries = [
        jks.TrustedCertEntry.new("größe", issuer),
        jks.PrivateKeyEntry.new("server", [own, issuer], key, "pkcs8"),
    ]
    return jks.KeyStore.new("jks", entries).saves(password), key, own


@for_rows("password", [PASSWORD, "größer als ~"])
def test_keys_and_certificates_are_read(authority: CertificateAuthority, password: str) -> None:
    data, key, own = store(authority, password)
    pair = key_pair_of_store(data, store_password=password, key_password=None)
    assert pair.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()) == key
    assert [one.public_bytes(Encoding.DER) for one in pair.certificates][:1] == [own]
    trusted = certificates_of_store(data, password=None)
    assert {one.public_bytes(Encoding.DER) for one in trusted} == {
        own,
        authority.identity.certificate.public_bytes(Encoding.DER),
    }
    with pytest.raises(KeyStoreError, match="the password is wrong or the file is damaged"):
        key_pair_of_store(data, store_password="no", key_password=None)
    with pytest.raises(KeyStoreError, match=r"correct ssl\.key\.password"):
        key_pair_of_store(data, store_password=password, key_password="no")


def test_equal_halves_of_a_salt_are_changed_as_java_does() -> None:
    salt = b"abcdabcd"
    key, start = sun_crypto._jce_pbe_derive_key_and_iv("password", salt, 20)
    encryptor = Cipher(TripleDES(key), modes.CBC(start)).encryptor()
    encrypted = encryptor.update(b"a key" + bytes([3]) * 3) + encryptor.finalize()
    assert decrypt_jceks_key(encrypted, "password", salt=salt, iterations=20) == b"a key"


def test_damaged_stores_raise_one_of_two_errors(authority: CertificateAuthority) -> None:
    data, *_ = store(authority)
    chance = random.Random(1)
    for _ in range(2_000):
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.choice((1, 4))] = chance.choice((b"", b"\xff" * 4, chance.randbytes(4)))
        with pytest.raises(WrongPassword):
            read_java_key_store(bytes(damaged), PASSWORD)
        try:
            read_java_key_store(bytes(damaged), None)
        except DamagedStore:
            continue
    for size in range(len(data)):
        with pytest.raises(DamagedStore):
            read_java_key_store(data[:size], None)


@pytest.mark.skipif(KEYTOOL is None, reason="needs keytool: install default-jre-headless")
@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["jks", "jceks"])
def test_a_store_of_keytool_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store"
    command = [
        *(KEYTOOL or "", "-genkeypair", "-alias", "server", "-keyalg", "EC", "-dname", "CN=server", "-storetype", kind),
        *("-keystore", str(path), "-storepass", PASSWORD, "-keypass", "another one"),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    pair = key_pair_of_store(path.read_bytes(), store_password=PASSWORD, key_password="another one")
    assert pair.certificates[0].public_key() == pair.key.public_key()
