"""One broker with all mechanisms for all tests of this folder, with SCRAM users that an administrator has created."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tests.peers.kctl_broker import OWN_PROGRAM
from tests.peers.sasl_broker import ADMIN, ADMIN_PASSWORD, SaslBroker, sasl_broker

SCRAM_USER, SCRAM_PASSWORD = "böb, the=builder", "scram-secret-7394"
SIMPLE_USER = "bob"
"""For clients that do not escape names."""


def admin_settings(broker: SaslBroker) -> dict[str, str | int | float | bool]:
    """librdkafka's settings of a client with all permissions."""
    return {
        "bootstrap.servers": broker.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": ADMIN,
        "sasl.password": ADMIN_PASSWORD,
    }


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """A broker with SASL listeners, and the SCRAM credentials of two users."""
    with sasl_broker(tmp_path_factory.mktemp("sasl"), run_by=OWN_PROGRAM) as started:
        admin = AdminClient(admin_settings(started))
        upsertions: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), SCRAM_PASSWORD.encode())
            for user in (SCRAM_USER, SIMPLE_USER)
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for future in admin.alter_user_scram_credentials(upsertions).values():
            future.result(30)
        yield started
