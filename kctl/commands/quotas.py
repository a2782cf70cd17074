"""`kctl quotas`: describe and change client quotas, and show which quotas apply to a client."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.security.quotas import (
    DecidingQuota,
    EntityQuotas,
    FilterPart,
    QuotaChange,
    alter_quotas,
    deciding_ip_quota,
    deciding_quota,
    describe_quotas,
    entity_text,
)
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.lazy_group import verb_group
from kctl.commands.frame.options.option_types import Rate
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.options.values import parse_ip_address
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.errors import UsageError
from kctl.output.console import Column, ErrorName, ErrorText
from kctl.security.quotas import (
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    EntityType,
    name_text,
)

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.client.outcome import Outcome


app = typer.Typer(
    cls=verb_group(__name__, ["describe", "alter", "check"]),
    help="Describe and change client quotas, show which one applies.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


# Options that several verbs of `kctl quotas` share, and the entities that they select.


class EntityOptions(NamedTuple):
    """The entity of a quota, or a part of it."""

    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="The user.")] = None
    default_user: Annotated[bool, typer.Option("--default-user", help="Users without a quota of their own.")] = False
    client_id: Annotated[str | None, typer.Option("--client-id", metavar="ID", help="The client id.")] = None
    default_client_id: Annotated[
        bool, typer.Option("--default-client-id", help="Client ids without a quota of their own.")
    ] = False
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="The IP address.")] = None
    default_ip: Annotated[bool, typer.Option("--default-ip", help="IP addresses without a quota of their own.")] = False


def named_entity(options: EntityOptions) -> dict[EntityType, str | None]:
    """Return the parts of the entity in the options, None for a default.

    Raises UsageError for invalid combinations.
    """
    parts: dict[EntityType, str | None] = {}
    for kind, option, name, is_default in (
        (EntityType.USER, "user", options.user, options.default_user),
        (EntityType.CLIENT_ID, "client-id", options.client_id, options.default_client_id),
        (EntityType.IP, "ip", options.ip, options.default_ip),
    ):
        if name is not None and is_default:
            raise UsageError(f"--{option} and --default-{option} cannot be combined")
        if name == "":
            raise UsageError(f"--{option} must not be empty; --default-{option} names the default")
        if name is not None or is_default:
            parts[kind] = name
    if EntityType.IP in parts and len(parts) > 1:
        raise UsageError("an IP address cannot be combined with a user or a client id")
    return parts


# Rows that several verbs of `kctl quotas` show.


def shown_name(entity: dict[str, str | None], kind: str) -> str | None:
    """Return the name of a part in a table: None for a part that the entity does not have."""
    return name_text(entity[kind]) if kind in entity else None


def number_text(value: float) -> float | int:
    """Return the value as an integer if it is whole, so that a rate of bytes is not shown as 1048576.0."""
    return int(value) if value.is_integer() else value


def warn_if_throttled(run: Invocation, throttle_ms: int) -> None:
    """Warn if a quota throttled the requests of this command."""
    if throttle_ms:
        run.console.warn(f"the broker throttles this user and client id for {throttle_ms} ms")


# `kctl quotas alter`.


verbs = typer.Typer(add_completion=False)


class Key(StrEnum):
    """Quotas that --delete can name."""

    PRODUCER = PRODUCER_BYTE_RATE
    CONSUMER = CONSUMER_BYTE_RATE
    REQUEST = REQUEST_PERCENTAGE
    MUTATION = CONTROLLER_MUTATION_RATE
    CONNECTION = CONNECTION_CREATION_RATE


class AlterRow(NamedTuple):
    """A change of one quota; null for a quota that is not set or not a finite number."""

    user: str | None
    client_id: str | None
    ip: str | None
    quota: str
    before: float | int | None
    after: float | int | None
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "alter",
    cls=ChangingCommand,
    epilog=examples(
        "kctl quotas alter --user alice --client-id app --producer-rate 1MB --consumer-rate 2MB --yes",
        "kctl quotas alter --default-user --request-percentage 50 --mutation-rate 10 --dry-run",
        "kctl quotas alter --ip 192.0.2.4 --connection-rate 20 --yes",
        "kctl quotas alter --user alice --delete producer_byte_rate --yes",
    ),
)
@shows(AlterRow)
@with_groups
def alter(
    ctx: typer.Context,
    *,
    chosen: EntityOptions,
    producer_rate: Annotated[
        Rate | None,
        typer.Option("--producer-rate", parser=Rate, help="Bytes per second to produce, such as 1m."),
    ] = None,
    consumer_rate: Annotated[
        Rate | None, typer.Option("--consumer-rate", parser=Rate, help="Bytes per second to fetch.")
    ] = None,
    request_percentage: Annotated[
        float | None,
        typer.Option(
            "--request-percentage",
            metavar="PERCENT",
            help="Time of the broker's network and request threads, in percent of one thread.",
            min=0,
        ),
    ] = None,
    mutation_rate: Annotated[
        float | None,
        typer.Option("--mutation-rate", metavar="N", help="Partitions created and deleted per second.", min=0),
    ] = None,
    connection_rate: Annotated[
        int | None, typer.Option("--connection-rate", metavar="N", help="Connections per second of an address.", min=0)
    ] = None,
    delete: Annotated[list[Key] | None, typer.Option("--delete", help="Remove this quota.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the broker validate the change without making it.")
    ] = False,
) -> ExitStatus:
    """Set or remove quotas of a user, a client id, a pair of both, or an IP address; other quotas are not changed.

    Each broker enforces a quota separately: a client may use it on every broker.  The changes of one command are
    atomic.  Asks for confirmation on a terminal; elsewhere --yes is required (exit status 5).  Requires Kafka 2.6 or
    later, for IP addresses and --mutation-rate 2.7.
    """
    run: Invocation = ctx.obj
    named = named_entity(chosen)
    if not named:
        raise UsageError("no entity is given; use --user, --client-id or --ip, or --default-user, ...")
    values: dict[str, float | None] = {
        PRODUCER_BYTE_RATE: producer_rate,
        CONSUMER_BYTE_RATE: consumer_rate,
        REQUEST_PERCENTAGE: request_percentage,
        CONTROLLER_MUTATION_RATE: mutation_rate,
        CONNECTION_CREATION_RATE: connection_rate,
    }
    changes = _changes(
        {key: value for key, value in values.items() if value is not None}, [key.value for key in delete or []], named
    )
    entity = tuple(named.items())

    async def look(client: ClusterClient) -> list[EntityQuotas]:
        return (await describe_quotas(client, [FilterPart(*part) for part in entity], is_strict=True))[0]

    before = next((quota.quotas for quota in run.on_cluster(look)), {})
    if not dry_run:
        run.consent(f"Change the quotas of {entity_text(entity)}?")
    outcome: Outcome = run.on_cluster(lambda client: alter_quotas(client, entity, changes, validate_only=dry_run))
    user_name, client_name, ip_name = (shown_name(dict(entity), kind) for kind in EntityType)
    rows = [
        AlterRow(
            user=user_name,
            client_id=client_name,
            ip=ip_name,
            quota=change.key,
            before=number_text(before[change.key]) if change.key in before else None,
            after=None if change.value is None else number_text(float(change.value)),
            status=("would be altered" if dry_run else "altered") if outcome.is_done else None,
            **outcome_error(outcome),
        )
        for change in changes
    ]
    run.console.show(AlterRow, rows)
    return run.status_of(rows)


def _changes(
    values: dict[str, float], removed: Sequence[str], named: dict[EntityType, str | None]
) -> list[QuotaChange]:
    """Return the changes.

    Raises UsageError if there are none, for contradictions, infinity and a key of another entity.
    """
    for key in removed:
        if key in values:
            raise UsageError(f"{key} cannot be both set and deleted")
    for key, value in values.items():
        if not math.isfinite(value):
            raise UsageError(f"{key} must be a number, not {value}; --delete {key} removes the limit")
    changes = [QuotaChange(key, value) for key, value in values.items()]
    changes += [QuotaChange(key, None) for key in dict.fromkeys(removed)]
    if not changes:
        raise UsageError("no change is given; use --producer-rate, --consumer-rate, ..., or --delete")
    for change in changes:
        if (change.key in IP_KEYS) is not (EntityType.IP in named):
            needs = "an IP address" if change.key in IP_KEYS else "a user or a client id"
            raise UsageError(f"{change.key} is a quota of {needs}")
    return changes


# `kctl quotas check`.


class CheckRow(NamedTuple):
    """Which quota of one kind applies; null where there is none."""

    quota: str
    value: float | int | None
    entity: str | None
    shared_by: str | None
    overridden: Annotated[list[str], Column(wraps=True)]


@verbs.command(
    "check",
    cls=QueryCommand,
    epilog=examples(
        "kctl quotas check --user alice --client-id app",
        "kctl quotas check --user alice --client-id app --ip 192.0.2.4 --format json",
    ),
)
@shows(CheckRow)
def check(
    ctx: typer.Context,
    *,
    user: Annotated[
        str, typer.Option("--user", metavar="NAME", help="The user; ANONYMOUS for clients without authentication.")
    ] = "ANONYMOUS",
    client_id: Annotated[str, typer.Option("--client-id", metavar="ID", help="The client id; empty for none.")] = "",
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="The IP address.")] = None,
) -> ExitStatus:
    """Show which quotas apply to a client, and which ones they override.

    Of the quotas with one key the most specific applies: user and client id, user and default client id, user, default
    user and client id, default user and default client id, default user, client id, default client id.  ENTITY
    is the entity of the quota, SHARED_BY the clients that share it.  Quotas in a broker's properties file
    (quota.producer.default) are not shown.
    The throttle times of other clients cannot be queried; kctl warns if its own request was throttled.
    """
    run: Invocation = ctx.obj
    if not user:
        raise UsageError("--user must not be empty; clients without a login are ANONYMOUS")
    address = None if ip is None else parse_ip_address(ip, "--ip")
    found, throttle_ms = run.on_cluster(describe_quotas)
    decided = [deciding_quota(found, key, user, client_id) for key in CLIENT_KEYS]
    if address is not None:
        decided.append(deciding_ip_quota(found, address))
    run.console.show(CheckRow, [_row(quota) for quota in decided])
    warn_if_throttled(run, throttle_ms)
    return ExitStatus.DONE


def _row(quota: DecidingQuota) -> CheckRow:
    return CheckRow(
        quota.key,
        None if quota.value is None else number_text(quota.value),
        quota.entity,
        quota.shared_by,
        [f"{entity}: {number_text(value)}" for entity, value in quota.overridden],
    )


# `kctl quotas describe`.


class QuotaItem(NamedTuple):
    """The quotas of one entity as a JSON object; a null name is the default, a null quota no finite number."""

    entity: dict[str, str | None]
    quotas: dict[str, float | int | None]


class QuotaRow(NamedTuple):
    """One quota of one entity."""

    user: str | None
    client_id: str | None
    ip: str | None
    quota: str
    value: float | int | None


@verbs.command(
    "describe",
    cls=QueryCommand,
    epilog=examples(
        "kctl quotas describe",
        "kctl quotas describe --user alice",
        "kctl quotas describe --default-user --default-client-id --format json",
    ),
)
@shows(QuotaItem)
@with_groups
def describe(
    ctx: typer.Context,
    *,
    chosen: EntityOptions,
) -> ExitStatus:
    """Show the quotas that are set, all or those of entities with the named parts.

    `--user alice` also shows the quotas of single client ids of that user.  One row per quota; with json, jsonl and
    yaml one object per entity, in which a null name is the default.  Requires Kafka 2.6 or later, for IP addresses 2.7.
    """
    run: Invocation = ctx.obj
    named = named_entity(chosen)
    parts = [FilterPart(kind, name) for kind, name in named.items()]
    found, throttle_ms = run.on_cluster(lambda client: describe_quotas(client, parts))
    items = [
        QuotaItem(dict(quota.entity), {key: number_text(quota.quotas[key]) for key in sorted(quota.quotas)})
        for quota in found
    ]
    items.sort(key=lambda item: [(kind not in item.entity, item.entity.get(kind) or "") for kind in EntityType])
    run.console.show(QuotaRow, items, rows=[row for item in items for row in _rows(item)])
    warn_if_throttled(run, throttle_ms)
    return ExitStatus.DONE


def _rows(item: QuotaItem) -> list[QuotaRow]:
    user, client_id, ip = (shown_name(item.entity, kind) for kind in EntityType)
    return [QuotaRow(user, client_id, ip, key, value) for key, value in item.quotas.items()]
