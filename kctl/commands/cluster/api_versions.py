"""`kctl cluster api-versions`: show the API versions that the brokers support."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.cluster.features import compare_apis, read_api_versions
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import BootstrapController
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
    bootstrap_controller: BootstrapController = None,
) -> ExitStatus:
    """Show the API versions that each broker supports, beside those of kctl.

    One row per API.  Brokers with the same versions share a column.  USABLE is the highest version that kctl and all
    brokers support.  DIFFERS marks APIs of which the brokers support different versions, as during an upgrade.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    brokers, failed = run.on_brokers(read_api_versions)
    apis = [api for api in compare_apis(brokers) if api.differs or not differing]
    groups = _groups(brokers)
    columns = (
        Column("key", numeric=True),
        Column("api"),
        *(Column(_name(group), _title(group)) for group in groups),
        Column("kctl"),
        Column("usable", numeric=True),
        Column("differs"),
    )
    run.console.show(columns, [_item(api) for api in apis], rows=[_row(api, groups) for api in apis])
    for outcome in failed:
        run.console.warn(f"broker {outcome.name}: {outcome.message}")
    return ExitStatus.FAILED if failed else ExitStatus.DONE


def _groups(brokers: Iterable[BrokerApis]) -> list[list[int]]:
    """Return the brokers with equal ranges, in the order of their first broker."""
    groups: dict[tuple[tuple[int, Range], ...], list[int]] = {}
    for broker in brokers:
        groups.setdefault(tuple(sorted(broker.ranges.items())), []).append(broker.broker_id)
    return list(groups.values())


def _name(group: Sequence[int]) -> str:
    return f"broker{'s' if len(group) > 1 else ''}_{'_'.join(map(str, group))}"


def _title(group: Sequence[int]) -> str:
    return f"BROKER{'S' if len(group) > 1 else ''} {','.join(map(str, group))}"


def _item(api: ComparedApi) -> ApiItem:
    return ApiItem(
        key=api.key,
        api=api.name,
        kctl_min=api.supported[0] if api.supported else None,
        kctl_max=api.supported[1] if api.supported else None,
        usable=api.usable,
        differs=api.differs,
        brokers=[BrokerRange(broker, *(found or (None, None))) for broker, found in api.brokers.items()],
    )


def _row(api: ComparedApi, groups: Iterable[Sequence[int]]) -> dict[str, object]:
    return {
        "key": api.key,
        "api": api.name,
        **{_name(group): _text(api.brokers[group[0]]) for group in groups},
        "kctl": _text(api.supported),
        "usable": api.usable,
        "differs": "differs" if api.differs else None,
    }


def _text(found: Range | None) -> str | None:
    return None if found is None else f"{found[0]}-{found[1]}"
