"""`kctl quotas describe`."""

from __future__ import annotations

from typing import NamedTuple

import typer

from kctl.admin.quotas import FilterPart, describe_quotas
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.quotas.options import ClientId, DefaultClientId, DefaultIp, DefaultUser, Ip, User, named_entity
from kctl.commands.quotas.rows import number_text, shown_name, warn_if_throttled
from kctl.commands.shown import shows
from kctl.console import Column
from kctl.security.quotas import EntityType

app = typer.Typer(add_completion=False)

DESCRIBE_COLUMNS = (
    Column("user"),
    Column("client_id"),
    Column("ip"),
    Column("quota"),
    Column("value", numeric=True),
)


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


@app.command(
    "describe",
    cls=QueryCommand,
    epilog=examples(
        "kctl quotas describe",
        "kctl quotas describe --user alice",
        "kctl quotas describe --default-user --default-client-id --format json",
    ),
)
@shows(QuotaItem)
def describe(
    ctx: typer.Context,
    *,
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
) -> ExitStatus:
    """Show the quotas that are set, all or those of entities with the named parts.

    `--user alice` also shows the quotas of single client ids of that user.  One row per quota; with json, jsonl and
    yaml one object per entity, in which a null name is the default.  Requires Kafka 2.6 or later, for IP addresses 2.7.
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
    parts = [FilterPart(kind, name) for kind, name in named.items()]
    found, throttle_ms = run.on_cluster(lambda client: describe_quotas(client, parts))
    items = [
        QuotaItem(dict(one.entity), {key: number_text(one.quotas[key]) for key in sorted(one.quotas)}) for one in found
    ]
    items.sort(key=lambda item: [(kind not in item.entity, item.entity.get(kind) or "") for kind in EntityType])
    run.console.show(DESCRIBE_COLUMNS, items, rows=[row for item in items for row in _rows(item)])
    warn_if_throttled(run, throttle_ms)
    return ExitStatus.DONE


def _rows(item: QuotaItem) -> list[QuotaRow]:
    user, client_id, ip = (shown_name(item.entity, kind) for kind in EntityType)
    return [QuotaRow(user, client_id, ip, key, value) for key, value in item.quotas.items()]
