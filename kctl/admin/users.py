"""SCRAM users through the APIs of KIP-554, which Apache Kafka has since 2.7.

Passwords do not leave this process: what is sent is derived from them.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from kctl.admin.outcome import Outcome, outcome_of, raise_if
from kctl.client.cluster import ClusterClient
from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kctl.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from kctl.security.scram_credentials import Mechanism, salted_password

SALT_BYTES = 24


@dataclass(frozen=True, slots=True)
class DescribedUser:
    """The credentials of a user, without their secrets."""

    outcome: Outcome
    iterations: dict[Mechanism, int] = field(default_factory=dict)
    """The iteration count of the credential of each mechanism."""


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A password for some mechanisms."""

    password: str = field(repr=False)
    mechanisms: tuple[Mechanism, ...]
    iterations: int


async def describe_users(client: ClusterClient, names: Collection[str] = ()) -> list[DescribedUser]:
    """The users with SCRAM credentials, by name; without names all of them.

    An error of the whole request is the outcome of each name; without names, ApiError is raised.
    """

    async def send_to(connection: Connection) -> DescribeUserScramCredentialsResponse:
        # Null means all users as well, but Apache Kafka never responds to it without permission (seen with 3.9.1).
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in sorted(names)])
        response = await connection.send(request, DescribeUserScramCredentialsResponse)
        raise_if(response.error_code, ErrorCode.NOT_CONTROLLER)
        return response

    response = await client.on_any_broker(send_to)
    if response.error_code:
        if not names:
            raise ApiError(ErrorCode.of(response.error_code), response.error_message)
        return [DescribedUser(outcome_of(name, response.error_code, response.error_message)) for name in sorted(names)]
    return [
        DescribedUser(
            outcome_of(each.user, each.error_code, each.error_message),
            {
                Mechanism(info.mechanism): info.iterations
                for info in sorted(each.credential_infos, key=lambda info: info.mechanism)
                if _is_known(info.mechanism)
            },
        )
        for each in sorted(response.results, key=lambda each: each.user)
    ]


async def set_password(client: ClusterClient, user: str, new: NewPassword) -> dict[Mechanism, Outcome]:
    """Creates or replaces the credentials of a user.  Takes some milliseconds of hashing for each mechanism.

    One request for each mechanism: a KRaft controller refuses a request that names a user twice
    (DUPLICATE_RESOURCE; Kafka: ScramControlManager.alterCredentials).
    """
    return {
        mechanism: await _alter(
            client, AlterUserScramCredentialsRequest(deletions=[], upsertions=[_upsertion(user, mechanism, new)])
        )
        for mechanism in new.mechanisms
    }


async def delete_credentials(
    client: ClusterClient, user: str, mechanisms: Sequence[Mechanism]
) -> dict[Mechanism, Outcome]:
    """Removes credentials of a user, each with its own request as in `set_password`.

    RESOURCE_NOT_FOUND is the outcome of those that do not exist.
    """
    return {
        mechanism: await _alter(
            client,
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name=user, mechanism=mechanism)], upsertions=[]
            ),
        )
        for mechanism in mechanisms
    }


async def _alter(client: ClusterClient, request: AlterUserScramCredentialsRequest) -> Outcome:
    async def send_to(connection: Connection) -> Outcome:
        response = await connection.send(request, AlterUserScramCredentialsResponse)
        (result,) = response.results
        raise_if(result.error_code, ErrorCode.NOT_CONTROLLER)
        return outcome_of(result.user, result.error_code, result.error_message)

    return await client.on_controller(send_to)


def _upsertion(user: str, mechanism: Mechanism, new: NewPassword) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(SALT_BYTES)
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=new.iterations,
        salt=salt,
        salted_password=salted_password(mechanism, new.password, salt, new.iterations),
    )


def _is_known(mechanism: int) -> bool:
    return mechanism in set(Mechanism)
