"""Encryption of passwords in ZooKeeper; tests/property/test_passwords_kafka.py compares it with Kafka's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.config.config_loading import load_broker_config
from kctl.errors import ApiError
from kctl.security.password_encoder import PasswordEncoder, PasswordEncoderError
from kctl.server.cluster.configs.alterations import DynamicPasswords, is_password

ENCODER = PasswordEncoder(secret="the-secret", iterations=1)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_password_survives_and_is_not_in_the_text(password: str) -> None:
    text = ENCODER.encode(password)
    assert ENCODER.decode(text) == password
    assert ENCODER.encode(password) != text
    assert "the-secret" not in text + repr(ENCODER)


def test_the_old_secret_is_tried_after_the_new_one() -> None:
    text = ENCODER.encode("password")
    assert PasswordEncoder(secret="new", old_secret="the-secret").decode(text) == "password"
    with pytest.raises(PasswordEncoderError, match=r"cannot be decrypted: set password.encoder.secret"):
        PasswordEncoder(secret="new").decode(text)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(PasswordEncoderError, match="is not an encrypted password"):
        ENCODER.decode(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [("cipherAlgorithm", "DES"), ("keyLength", "7"), ("iterations", "99999999999"), ("keyFactoryAlgorithm", "MD5")],
)
def test_parameters_that_are_not_supported_are_refused(name: str, value: str) -> None:
    fields = dict(entry.split(":", 1) for entry in ENCODER.encode("p").split(","))
    with pytest.raises(PasswordEncoderError, match=f"{value}|above"):
        ENCODER.decode(",".join(f"{key}:{text}" for key, text in {**fields, name: value}.items()))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ssl.keystore.password", True),
        ("listener.name.secure.ssl.key.password", True),
        ("listener.name.secure.scram-sha-256.sasl.jaas.config", True),
        ("listener.name.secure.ssl.keystore.location", False),
        ("log.retention.ms", False),
    ],
)
def test_passwords_are_recognised_by_their_names(name: str, *, expected: bool) -> None:
    assert is_password(name) is expected


def test_passwords_are_stored_encrypted_and_refused_without_a_secret() -> None:
    overrides = {"ssl.keystore.password": "hunter2", "log.retention.ms": "1000"}
    with_secret = DynamicPasswords(load_broker_config({"password.encoder.secret": "the-secret"})[0])
    without = DynamicPasswords(load_broker_config({})[0])
    stored = with_secret.encoded(overrides)
    assert "hunter2" not in str(stored)
    assert with_secret.decoded(stored) == (overrides, [])
    with pytest.raises(ApiError, match=r"set password.encoder.secret"):
        without.encoded(overrides)
    assert without.decoded(stored) == (
        {"log.retention.ms": "1000"},
        ["ssl.keystore.password: password.encoder.secret is not set in server.properties"],
    )
