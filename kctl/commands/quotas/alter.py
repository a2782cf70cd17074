"""`kctl quotas alter`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.quotas import EntityQuotas, FilterPart, QuotaChange, alter_quotas, describe_quotas, entity_text
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.quotas.options import ClientId, DefaultClientId, DefaultIp, DefaultUser, Ip, User, named_entity
from kctl.commands.quotas.rows import number_text, shown_name
from kctl.commands.rows import outcome_error
from kctl.commands.shown import shows
from kctl.commands.values import parse_rate
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import UsageError
from kctl.security.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    EntityType,
)

if TYPE_CHECKING:
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


class Key(StrEnum):
    """Quotas that --delete can name."""

    PRODUCER = PRODUCER_BYTE_RATE
    CONSUMER = CONSUMER_BYTE_RATE
    REQUEST = REQUEST_PERCENTAGE
    MUTATION = CONTROLLER_MUTATION_RATE
    CONNECTION = CONNECTION_CREATION_RATE


ALTER_COLUMNS = (
    Column("user"),
    Column("client_id"),
    Column("ip"),
    Column("quota"),
    Column("before", numeric=True),
    Column("after", numeric=True),
    Column("status"),
    *ERROR_COLUMNS,
)


class AlterRow(NamedTuple):
    """A change of one quota; null for a quota that is not set or not a finite number."""

    user: str | None
    client_id: str | None
    ip: str | None
    quota: str
    before: float | int | None
    after: float | int | None
    status: str | None
    error: str | None = None
    message: str | None = None


@app.command(
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
def alter(
    ctx: typer.Context,
    *,
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    producer_rate: Annotated[
        str | None,
        typer.Option("--producer-rate", metavar="BYTES_PER_S", help="Bytes per second to produce, such as 1m."),
    ] = None,
    consumer_rate: Annotated[
        str | None, typer.Option("--consumer-rate", metavar="BYTES_PER_S", help="Bytes per second to fetch.")
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
    named = named_entity(
        user=user,
        default_user=default_user,
        client_id=client_id,
        default_client_id=default_client_id,
        ip=ip,
        default_ip=default_ip,
    )
    if not named:
        raise UsageError("no entity is given; use --user, --client-id or --ip, or --default-user, ...")
    values: dict[str, float | None] = {
        PRODUCER_BYTE_RATE: None if producer_rate is None else parse_rate(producer_rate),
        CONSUMER_BYTE_RATE: None if consumer_rate is None else parse_rate(consumer_rate),
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

    before = next((one.quotas for one in run.on_cluster(look)), {})
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
    run.console.show(ALTER_COLUMNS, rows)
    return run.status_of(rows)


def _changes(
    values: dict[str, float], removed: Sequence[str], named: dict[EntityType, str | None]
) -> list[QuotaChange]:
    """The changes.  Raises UsageError if there are none, for contradictions, infinity and a key of another entity."""
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
