"""Describes and alters client quotas (KIP-546, Kafka 2.6), and determines which one applies to a client.

Requests go to any broker.  Quotas of IP addresses require Kafka 2.7 or later (KIP-612).  Brokers before 2.6 have no
API for quotas; there they can be changed in ZooKeeper only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.outcome import Outcome, outcome_of, raise_if
from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from kctl.protocol.apis.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kctl.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from kctl.security.quotas import (
    CONNECTION_CREATION_RATE,
    DEFAULT,
    EntityType,
    QuotaEntity,
    candidates,
    name_text,
)

ANY = 2
_EXACT, _DEFAULT = 0, 1
SCRAM_MECHANISMS: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

Entity = tuple[tuple[str, str | None], ...]
"""The parts of an entity as type and name; None for the default of the type."""


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """The quotas of one entity by key."""

    entity: Entity
    quotas: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A quota to set or, with None, to remove."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class FilterPart:
    """Entities with a part of this type: of this name, the default, or any."""

    type: EntityType
    name: str | None = None
    is_any: bool = False


@dataclass(frozen=True, slots=True)
class DecidingQuota:
    """The quota that applies to a client, and those that it overrides, the most specific first."""

    key: str
    value: float | None
    """None if no quota applies."""
    entity: str | None
    shared_by: str | None
    overridden: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class ScramUser:
    """The SCRAM credentials of a user without their secrets: mechanism and iterations."""

    outcome: Outcome
    credentials: tuple[tuple[str, int], ...]


async def describe_quotas(
    client: ClusterClient, parts: Sequence[FilterPart] = (), *, is_strict: bool = False
) -> tuple[list[EntityQuotas], int]:
    """Return the entities that match all parts, in the order of the broker, and the throttle time in ms of the request
    itself.

    `is_strict`: only entities without further parts.  Raises ApiError; UNSUPPORTED_VERSION for brokers before 2.6.
    """
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(
                entity_type=part.type,
                match_type=ANY if part.is_any else _DEFAULT if part.name is None else _EXACT,
                match=part.name,
            )
            for part in parts
        ],
        strict=is_strict,
    )

    async def send_to(connection: Connection) -> DescribeClientQuotasResponse:
        _check_known(connection, DescribeClientQuotasRequest)
        return await connection.send(request, DescribeClientQuotasResponse)

    response = await client.on_any_broker(send_to)
    if response.error_code:
        raise ApiError(ErrorCode.of(response.error_code), response.error_message or None)
    found = [
        EntityQuotas(
            tuple(sorted(((part.entity_type, part.entity_name) for part in entry.entity), key=_order_of_part)),
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or []
    ]
    return found, response.throttle_time_ms


def _order_of_part(part: tuple[str, str | None]) -> int:
    """User, client id, address: brokers return the parts in the order of a hash table."""
    types = list(EntityType)
    return types.index(EntityType(part[0])) if part[0] in types else len(types)


async def alter_quotas(
    client: ClusterClient, entity: Entity, changes: Sequence[QuotaChange], *, validate_only: bool = False
) -> Outcome:
    """Change quotas of one entity: all of them or, on an error, none."""
    request = AlterClientQuotasRequest(
        entries=[
            RequestEntryData(
                entity=[RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[
                    OpData(key=change.key, value=change.value or 0.0, remove=change.value is None) for change in changes
                ],
            )
        ],
        validate_only=validate_only,
    )

    async def send_to(connection: Connection) -> Outcome:
        _check_known(connection, AlterClientQuotasRequest)
        await client.check_quorum(connection)
        response = await connection.send(request, AlterClientQuotasResponse)
        for entry in response.entries:
            raise_if(entry.error_code, ErrorCode.NOT_CONTROLLER)
            return outcome_of(entity_text(entity), entry.error_code, entry.error_message)
        return Outcome(entity_text(entity), ErrorCode.UNKNOWN_SERVER_ERROR, "the response lacks the entity")

    return await client.on_any_broker(send_to)


async def describe_scram_users(client: ClusterClient, names: Sequence[str] = ()) -> list[ScramUser]:
    """Return the users with SCRAM credentials (KIP-554, Kafka 2.7), all or those named, in the order of the broker.

    Raises ApiError; UNSUPPORTED_VERSION for brokers before 2.7.
    """

    async def send_to(connection: Connection) -> DescribeUserScramCredentialsResponse:
        if not connection.versions.supports(DescribeUserScramCredentialsRequest):
            text = f"the broker at {connection.address} cannot describe SCRAM credentials (before Kafka 2.7)"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
        return await connection.send(request, DescribeUserScramCredentialsResponse)

    response = await client.on_any_broker(send_to)
    if response.error_code:
        raise ApiError(ErrorCode.of(response.error_code), response.error_message or None)
    return [
        ScramUser(
            outcome_of(result.user, result.error_code, result.error_message),
            tuple(
                (SCRAM_MECHANISMS.get(info.mechanism, "UNKNOWN"), info.iterations) for info in result.credential_infos
            ),
        )
        for result in response.results
        if result.error_code != ErrorCode.RESOURCE_NOT_FOUND
    ]


def deciding_quota(found: Sequence[EntityQuotas], key: str, user: str, client_id: str) -> DecidingQuota:
    """Return which of the quotas with this key applies to a user and client id."""
    values = {
        _quota_entity(quota.entity): quota.quotas[key]
        for quota in found
        if key in quota.quotas and _is_of_client(quota.entity)
    }
    matching = [entity for entity in candidates(user, client_id) if entity in values]
    if not matching:
        return DecidingQuota(key, None, None, None, ())
    entity, *others = matching
    return DecidingQuota(
        key,
        values[entity],
        str(entity),
        _shared_by(entity),
        tuple((str(other), values[other]) for other in others),
    )


def deciding_ip_quota(found: Sequence[EntityQuotas], ip: str) -> DecidingQuota:
    """Return the quota for connections from an address, which is in its usual form; an entity need not be."""
    values = {
        _usual_address(name): quota.quotas[CONNECTION_CREATION_RATE]
        for quota in found
        for kind, name in quota.entity
        if kind == EntityType.IP and CONNECTION_CREATION_RATE in quota.quotas
    }
    names = {ip: f"ip {ip}", None: "ip (default)"}
    matching = [(text, values[name]) for name, text in names.items() if name in values]
    if not matching:
        return DecidingQuota(CONNECTION_CREATION_RATE, None, None, None, ())
    (text, value), *others = matching
    return DecidingQuota(CONNECTION_CREATION_RATE, value, text, "connections of the address", tuple(others))


def _usual_address(name: str | None) -> str | None:
    """Return the name of an entity; an address in its usual form, as the one of a connection."""
    try:
        return None if name is None else str(ipaddress.ip_address(name))
    except ValueError:
        return name  # That of a host.


def entity_text(entity: Entity) -> str:
    """Return the entity for people, such as "user alice, client-id (default)"."""
    return ", ".join(f"{kind} {name_text(name, '(default)')}" for kind, name in entity)


def _shared_by(entity: QuotaEntity) -> str:
    if entity.client_id is None:
        return "all client ids of the user"
    if entity.user is None:
        return "all users with the client id"
    return "clients with this user and client id"


def _is_of_client(entity: Entity) -> bool:
    return all(kind in {EntityType.USER, EntityType.CLIENT_ID} for kind, _ in entity)


def _quota_entity(entity: Entity) -> QuotaEntity:
    names = {kind: DEFAULT if name is None else name for kind, name in entity}
    return QuotaEntity(names.get(EntityType.USER), names.get(EntityType.CLIENT_ID))


def _check_known(connection: Connection, request_class: type) -> None:
    if not connection.versions.supports(request_class):
        text = f"the broker at {connection.address} has no requests for quotas (before Kafka 2.6)"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
