"""SCRAM users through the APIs of KIP-554, which Apache Kafka has since 2.7.

Passwords do not leave this process: what is sent is derived from them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.outcome import Outcome, outcome_of, raise_if
from kctl.errors import ApiError, BadVersionError, ErrorCode, NodeExistsError, NoNodeError
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
from kctl.security.scram import (
    Mechanism,
    ScramError,
    credential_of_password,
    credential_text,
    parse_credential,
    salted_password,
)
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper

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
    """Return the users with SCRAM credentials, by name; without names all of them.

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
            outcome_of(result.user, result.error_code, result.error_message),
            {
                Mechanism(info.mechanism): info.iterations
                for info in sorted(result.credential_infos, key=lambda info: info.mechanism)
                if _is_known(info.mechanism)
            },
        )
        for result in sorted(response.results, key=lambda result: result.user)
    ]


async def set_password(client: ClusterClient, user: str, new: NewPassword) -> dict[Mechanism, Outcome]:
    """Create or replace the credentials of a user.  Takes some milliseconds of hashing for each mechanism.

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
    """Remove credentials of a user, each with its own request as in `set_password`.

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


# SCRAM users in ZooKeeper, for clusters whose brokers do not run, or need the users to start.
#
# Running brokers receive the same change notification as for changes by brokers.
#
# Kafka: AdminZkClient.changeUserOrUserClientIdConfig (2.8).


_ATTEMPTS_MAX = 20


async def describe_users_in_zookeeper(zookeeper: ZooKeeper, names: Collection[str] = ()) -> list[DescribedUser]:
    """Return the users with SCRAM credentials, by name; without names all of them."""
    requested = sorted(names) or [paths.desanitize(name) for name in await _children(zookeeper)]
    described = []
    for user in requested:
        try:
            config, _ = await _read(zookeeper, user)
            iterations = {
                mechanism: parse_credential(mechanism, config[mechanism.config_key]).iterations
                for mechanism in Mechanism
                if mechanism.config_key in config
            }
        except (ValueError, ScramError) as error:
            described.append(DescribedUser(Outcome(user, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))))
            continue
        if iterations:
            described.append(DescribedUser(Outcome(user), iterations))
        elif names:
            described.append(DescribedUser(_not_found(user)))
    return described


async def set_password_in_zookeeper(zookeeper: ZooKeeper, user: str, new: NewPassword) -> dict[Mechanism, Outcome]:
    """Create or replace the credentials of a user, all or none."""
    texts = {
        mechanism.config_key: credential_text(
            credential_of_password(
                mechanism, new.password, salt=secrets.token_bytes(SALT_BYTES), iterations=new.iterations
            )
        )
        for mechanism in new.mechanisms
    }
    return dict.fromkeys(new.mechanisms, await _change(zookeeper, user, lambda config: {**config, **texts}))


async def delete_credentials_in_zookeeper(
    zookeeper: ZooKeeper, user: str, mechanisms: Sequence[Mechanism]
) -> dict[Mechanism, Outcome]:
    """Remove credentials of a user; RESOURCE_NOT_FOUND if one does not exist, and then none is removed."""
    keys = {mechanism.config_key for mechanism in mechanisms}

    def without(config: Mapping[str, str]) -> Mapping[str, str]:
        if not keys <= config.keys():
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND)
        return {name: value for name, value in config.items() if name not in keys}

    try:
        outcome = await _change(zookeeper, user, without)
    except ApiError:
        outcome = _not_found(user)
    return dict.fromkeys(mechanisms, outcome)


async def _change(zookeeper: ZooKeeper, user: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Outcome:
    entity = f"users/{paths.sanitize(user)}"
    path = paths.config_entity(entity)
    for _ in range(_ATTEMPTS_MAX):
        try:
            config, version = await _read(zookeeper, user)
        except ValueError as error:
            return Outcome(user, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        data = znodes.encode_config(change(config))
        try:
            if version is None:
                await zookeeper.create(path, data, make_parents=True)
            else:
                await zookeeper.set(path, data, version=version)
        except (NodeExistsError, BadVersionError, NoNodeError):
            continue  # Another writer changed the user in the meantime.
        await zookeeper.create(
            paths.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), sequence=True, make_parents=True
        )
        return Outcome(user)
    return Outcome(user, ErrorCode.UNKNOWN_SERVER_ERROR, "the user is being changed by others; try again")


async def _read(zookeeper: ZooKeeper, user: str) -> tuple[dict[str, str], int | None]:
    """Return the configuration of a user and the version of its znode; None if there is none.  Raises ValueError."""
    path = paths.config_entity(f"users/{paths.sanitize(user)}")
    try:
        data, stat = await zookeeper.get(path)
    except NoNodeError:
        return {}, None
    return znodes.decode_config(path, data), stat.version


async def _children(zookeeper: ZooKeeper) -> list[str]:
    try:
        elements = await zookeeper.children(paths.config_entity("users"))
    except NoNodeError:
        return []
    return [name for name in elements if name != paths.DEFAULT_ENTITY]


def _not_found(user: str) -> Outcome:
    return Outcome(user, ErrorCode.RESOURCE_NOT_FOUND, "the user has no such SCRAM credential")
