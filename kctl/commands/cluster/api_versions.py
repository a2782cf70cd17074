"""`kctl cluster api-versions`: show the API versions that the brokers support."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.cluster.features import compare_apis, read_api_versions
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.output.console import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kctl.admin.cluster.features import BrokerApis, ComparedApi, Range


# `kctl cluster api-versions`.


verbs = typer.Typer(add_completion=False)


class BrokerRange(NamedTuple):
    """The versions of an API that one broker supports; null if it lacks the API."""

    broker: int
    min: int | None
    max: int | None


class ApiItem(NamedTuple):
    """One API as a JSON object."""

    key: int
    api: str
    kctl_min: int | None
    kctl_max: int | None
    usable: int | None
    differs: bool
    brokers: list[BrokerRange]


@verbs.command(
    "api-versions",
    cls=QueryCommand,
    epilog=examples(
        "kctl cluster api-versions", "kctl cluster api-versions --differing", "kctl cluster api-versions --format json"
    ),
)
@shows(ApiItem)
def api_versions(
    ctx: typer.Context,
    *,
    differing: Annotated[
        bool, typer.Option("--differing", help="Only APIs of which the brokers support different versions.")
    ] = False,
) -> ExitStatus:
    """Show the API versions that each broker supports, beside those of kctl.

    One row per API.  Brokers with the same versions share a column.  USABLE is the highest version that kctl and all
    brokers support.  DIFFERS marks APIs of which the brokers support different versions, as during an upgrade.
    """
    run: Invocation = ctx.obj
    brokers, failed = run.on_brokers(read_api_versions)
    apis = [one for one in compare_apis(brokers) if one.differs or not differing]
    groups = _groups(brokers)
    columns = (
        Column("key", numeric=True),
        Column("api"),
        *(Column(_name(group), _title(group)) for group in groups),
        Column("kctl"),
        Column("usable", numeric=True),
        Column("differs"),
    )
    run.console.show(columns, [_item(one) for one in apis], rows=[_row(one, groups) for one in apis])
    for outcome in failed:
        run.console.warn(f"broker {outcome.name}: {outcome.message}")
    return ExitStatus.FAILED if failed else ExitStatus.DONE


def _groups(brokers: Iterable[BrokerApis]) -> list[list[int]]:
    """The brokers with equal ranges, in the order of their first broker."""
    groups: dict[tuple[tuple[int, Range], ...], list[int]] = {}
    for one in brokers:
        groups.setdefault(tuple(sorted(one.ranges.items())), []).append(one.broker_id)
    return list(groups.values())


def _name(group: Sequence[int]) -> str:
    return f"broker{'s' if len(group) > 1 else ''}_{'_'.join(map(str, group))}"


def _title(group: Sequence[int]) -> str:
    return f"BROKER{'S' if len(group) > 1 else ''} {','.join(map(str, group))}"


def _item(one: ComparedApi) -> ApiItem:
    return ApiItem(
        key=one.key,
        api=one.name,
        kctl_min=one.supported[0] if one.supported else None,
        kctl_max=one.supported[1] if one.supported else None,
        usable=one.usable,
        differs=one.differs,
        brokers=[BrokerRange(broker, *(found or (None, None))) for broker, found in one.brokers.items()],
    )


def _row(one: ComparedApi, groups: Iterable[Sequence[int]]) -> dict[str, object]:
    return {
        "key": one.key,
        "api": one.name,
        **{_name(group): _text(one.brokers[group[0]]) for group in groups},
        "kctl": _text(one.supported),
        "usable": one.usable,
        "differs": "differs" if one.differs else None,
    }


def _text(found: Range | None) -> str | None:
    return None if found is None else f"{found[0]}-{found[1]}"
