"""The broker's SCRAM credentials: reading from ZooKeeper, and malformed ones."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kctl.security.scram import Mechanism, credential_of_password, credential_text
from kctl.server.security.sasl.scram_credentials import ScramCredentials

SHA_256 = Mechanism.SCRAM_SHA_256
CREDENTIAL = credential_of_password(SHA_256, "secret", salt=b"salt", iterations=4096)
CONFIG = {SHA_256.config_key: credential_text(CREDENTIAL), "producer_byte_rate": "1000"}


def read(*changes: tuple[str, dict[str, str] | None]) -> ScramCredentials:
    credentials = ScramCredentials()

    async def apply() -> None:
        for path, config in changes:
            await credentials.change(path, config)

    asyncio.run(apply())
    return credentials


def test_names_of_znodes_are_decoded() -> None:
    assert read(("users/a%2Cb%3D%C3%BC", CONFIG)).credential(SHA_256, "a,b=ü") == CREDENTIAL


@pytest.mark.parametrize("path", ["users/<default>", "users/alice/clients/c", "clients/alice", "ips/10.0.0.1"])
def test_other_entities_are_no_users(path: str) -> None:
    credentials = read((path, CONFIG))
    for name in ("alice", "<default>", "10.0.0.1", "c"):
        assert credentials.credential(SHA_256, name) != CREDENTIAL


def test_a_removed_credential_and_a_removed_user_are_not_accepted() -> None:
    assert read(("users/a", CONFIG), ("users/a", {})).credential(SHA_256, "a") != CREDENTIAL
    credentials = read(("users/a", CONFIG))
    asyncio.run(credentials.replace({"users/b": CONFIG}))
    assert credentials.credential(SHA_256, "a") != CREDENTIAL
    assert credentials.credential(SHA_256, "b") == CREDENTIAL


def test_a_user_whose_configuration_becomes_unreadable_has_no_credential() -> None:
    credentials = read(("users/a", CONFIG), ("users/b", CONFIG), ("users/a", None))
    assert credentials.credential(SHA_256, "a") != CREDENTIAL
    assert credentials.credential(SHA_256, "b") == CREDENTIAL
    asyncio.run(credentials.replace({"users/a": CONFIG, "users/b": None}))
    assert credentials.credential(SHA_256, "a") == CREDENTIAL
    assert credentials.credential(SHA_256, "b") != CREDENTIAL


def test_an_unknown_user_gets_the_same_salt_each_time_and_random_keys() -> None:
    credentials = ScramCredentials()
    one, two = credentials.credential(SHA_256, "x"), credentials.credential(SHA_256, "x")
    assert (one.salt, one.iterations) == (two.salt, two.iterations)
    assert one.stored_key != two.stored_key
    assert credentials.credential(SHA_256, "y").salt != one.salt


def test_a_malformed_credential_is_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    text = credential_text(CREDENTIAL).replace("iterations=4096", "iterations=1")
    with caplog.at_level(logging.DEBUG):
        credentials = read(*[("users/alice", {SHA_256.config_key: text})] * 3, ("users/bob", CONFIG))
    assert credentials.credential(SHA_256, "alice") != CREDENTIAL
    assert credentials.credential(SHA_256, "bob") == CREDENTIAL
    (message,) = {record.getMessage() for record in caplog.records if record.levelno >= logging.INFO}
    assert "user=alice" in message
    assert "iterations" in message
    assert text[5:20] not in caplog.text
