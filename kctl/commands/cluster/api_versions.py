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
from kctl.output.quantities import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kctl.admin.cluster.features import ComparedApi, Range


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


class ApiRow(NamedTuple):
    """One API in the table."""

    key: int
    api: str
    brokers: Annotated[str | None, Column(wraps=True)]
    kctl: str | None
    usable: int | None
    differs: str | None


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

    One row per API.  BROKERS has the versions that all brokers support, or where they differ those of each: 1,2: 0-11;
    3: 0-9.  USABLE is the highest version that kctl and all brokers support.  DIFFERS marks APIs of which the brokers
    support different versions, as during an upgrade.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    brokers, failed = run.on_brokers(read_api_versions)
    apis = [api for api in compare_apis(brokers) if api.differs or not differing]
    run.console.show(ApiRow, [_item(api) for api in apis], rows=[_row(api) for api in apis])
    for outcome in failed:
        run.console.warn(f"broker {outcome.name}: {outcome.message}")
    return ExitStatus.FAILED if failed else ExitStatus.DONE


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


def _row(api: ComparedApi) -> ApiRow:
    return ApiRow(
        key=api.key,
        api=api.name,
        brokers=_ranges_text(api.brokers),
        kctl=_text(api.supported),
        usable=api.usable,
        differs="differs" if api.differs else None,
    )


def _ranges_text(brokers: Mapping[int, Range | None]) -> str | None:
    """Return the versions of all brokers; where they differ, `1,2: 0-11; 3: 0-9`."""
    by_range: dict[Range | None, list[int]] = {}
    for broker, versions in brokers.items():
        by_range.setdefault(versions, []).append(broker)
    if len(by_range) == 1:
        return _text(next(iter(by_range)))
    return "; ".join(f"{','.join(map(str, ids))}: {_text(versions) or NOTHING}" for versions, ids in by_range.items())


def _text(versions: Range | None) -> str | None:
    return None if versions is None else f"{versions[0]}-{versions[1]}"
