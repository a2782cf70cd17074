"""`kctl configs diff`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.topics.configs import describe_configs
from kctl.admin.topics.overrides import config_differences
from kctl.client.outcome import Outcome
from kctl.commands.configs import describe
from kctl.commands.configs.describe import Type, requested_resources, type_and_name
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.profiles.secrets import read_properties
from kctl.commands.frame.query import QueryCommand
from kctl.commands.quotas import number_text
from kctl.errors import UsageError
from kctl.output.console import ErrorName, ErrorText

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

verbs = typer.Typer(add_completion=False)

OTHER_PANEL = "The other side"
Values = Mapping[str, str | None]
Side = Mapping[str, Values | Outcome]
"""The properties of each resource by name, or the error."""


class ConfigDifferenceRow(NamedTuple):
    """A property that differs, or a resource that could not be described."""

    type: str
    name: str
    other: Annotated[str, "Name on the other side, or the file."]
    property: str | None
    value: str | None
    other_value: str | None
    status: Annotated[str | None, "different, only here, or only there."]
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "diff",
    cls=QueryCommand,
    epilog=examples(
        "kctl configs diff topic orders payments",
        "kctl configs diff broker 1 2 --own",
        "kctl configs diff topic --other-profile staging",
        "kctl configs diff topic orders --file orders.properties",
    ),
)
@shows(ConfigDifferenceRow)
def diff(
    ctx: typer.Context,
    type_: Type,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Two resources to compare with each other; with another cluster, those to compare with the ones of the"
            " same name (default: all); with --file, one.",
            metavar="NAME",
        ),
    ] = None,
    *,
    own: Annotated[
        bool,
        typer.Option("--own", help="Only properties that are set on one of the two resources itself, not defaults."),
    ] = False,
    property_: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME", help="Only this property.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Compare with this properties file, and only the properties in it; with --own also those not in it.",
            rich_help_panel=OTHER_PANEL,
        ),
    ] = None,
    other_bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--other-bootstrap-server",
            metavar="HOST:PORT[,...]",
            help="Compare with the same names in this cluster.",
            rich_help_panel=OTHER_PANEL,
        ),
    ] = None,
    other_command_config: Annotated[
        str | None,
        typer.Option(
            "--other-command-config",
            metavar="FILE",
            help="Properties file with client settings for the other cluster.",
            rich_help_panel=OTHER_PANEL,
        ),
    ] = None,
    other_profile: Annotated[
        str | None,
        typer.Option(
            "--other-profile",
            metavar="PROFILE",
            help="Profile of the other cluster.",
            rich_help_panel=OTHER_PANEL,
        ),
    ] = None,
) -> ExitStatus:
    """Show the properties that differ; exit status 3 if there are any.

    Compares two topics, brokers, groups and so on with each other, with those of the same names in another cluster, or
    one with a properties file.  Without --own, the values in force are compared, whatever their source.  Brokers do not
    return the values of sensitive properties: two of them count as equal.
    """
    run: Invocation = ctx.obj
    is_cluster = any((other_bootstrap_server, other_command_config, other_profile))
    requested = list(dict.fromkeys(names or []))
    if file is not None and is_cluster:
        raise UsageError("--file and another cluster cannot be combined")
    if file is not None and len(requested) != 1:
        raise UsageError("--file is compared with one resource; name it")
    if file is None and not is_cluster and len(requested) != 2:
        raise UsageError("name two resources to compare, or another cluster, or --file")
    values = {} if file is None else dict(read_properties(file))
    other = run.of_side(other_bootstrap_server, other_command_config, other_profile)
    if is_cluster:
        other.client_settings()  # Raises errors of the options before a cluster is asked.
    here = _side(run, type_, requested, own=own)
    rows: list[ConfigDifferenceRow] = []
    if file is not None:
        chosen = property_ or (None if own else list(values))
        rows += _compare(type_, requested[0], _of(here, requested[0]), file, values, chosen)
    elif is_cluster:
        there = _side(other, type_, requested, own=own)
        for name in sorted(here.keys() | there.keys()):
            rows += _with_the_same_name(type_, name, here.get(name), there.get(name), property_)
    else:
        first, second = requested
        rows += _compare(type_, first, _of(here, first), second, _of(here, second), property_)
    run.console.show(ConfigDifferenceRow, rows)
    failed = run.status_of(rows)
    return failed if failed is not ExitStatus.DONE or not rows else ExitStatus.UNMET


def _side(run: Invocation, type_: str, names: list[str], *, own: bool) -> Side:
    """Return the properties of the named resources of a cluster, or of all."""
    if type_ in describe.TYPES:
        filters = describe.filters(type_, names, None)
        found = run.on_cluster(lambda client: describe.quotas_of(client, filters))
        quotas: dict[str, Values] = {name: {} for name in names}
        for quotas_of_entity in found:
            quotas[describe.shown_name(quotas_of_entity.entity)] = {
                key: str(number_text(quotas_of_entity.quotas[key])) for key in quotas_of_entity.quotas
            }
        return quotas

    async def query(client: ClusterClient) -> Side:
        resources = await requested_resources(client, type_, names)
        described = await describe_configs(client, resources, synonyms=False)
        return {
            type_and_name(resource)[1]: entries
            if isinstance(entries, Outcome)
            else {entry.name: entry.value for entry in entries if not own or entry.source == resource.own_source}
            for resource, entries in described.items()
        }

    return run.on_brokers(query)


def _of(side: Side, name: str) -> Values | Outcome:
    """Return the values; raise UsageError for another spelling of the name, such as `01` for broker 1."""
    if name not in side:
        raise UsageError(f"'{name}' is not the name of the resource; it is {' or '.join(side)}")
    return side[name]


def _with_the_same_name(
    type_: str, name: str, here: Values | Outcome | None, there: Values | Outcome | None, chosen: list[str] | None
) -> list[ConfigDifferenceRow]:
    """Return the differences of a resource from that of the same name in the other cluster, where one may not exist."""
    if here is None or there is None:
        status = "only there" if here is None else "only here"
        return [ConfigDifferenceRow(type_, name, name, None, None, None, status)]
    return _compare(type_, name, here, name, there, chosen)


def _compare(
    type_: str, name: str, here: Values | Outcome, other: str, there: Values | Outcome, chosen: list[str] | None
) -> list[ConfigDifferenceRow]:
    for side in (here, there):
        if isinstance(side, Outcome):
            return [ConfigDifferenceRow(type_, name, other, None, None, None, None, **outcome_error(side))]
    assert not isinstance(here, Outcome)
    assert not isinstance(there, Outcome)
    return [
        ConfigDifferenceRow(
            type_,
            name,
            other,
            difference.property,
            difference.here,
            difference.there,
            "different"
            if difference.is_here and difference.is_there
            else "only here"
            if difference.is_here
            else "only there",
        )
        for difference in config_differences(here, there, chosen)
    ]
