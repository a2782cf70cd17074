"""`kctl profile add`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.client.property_table import Client, check_properties, unknown_names
from kctl.client.settings import PLAINTEXT, parse_servers
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation, duration_ms
from kctl.commands.options import Format
from kctl.commands.profile.options import NAME, change
from kctl.commands.profile.rows import ProfileRow
from kctl.commands.profile.secrets import check_given
from kctl.commands.profile_document import Profile, checked_name
from kctl.commands.secret_files import read_properties
from kctl.commands.shown import shows
from kctl.commands.values import parse_pairs
from kctl.config.references import has_reference
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.commands.profile_document import Profiles

app = typer.Typer(add_completion=False)


@app.command(
    "add",
    cls=LocalCommand,
    epilog=examples(
        "kctl profile add dev --bootstrap-server 127.0.0.1:9092",
        "kctl profile add prod --command-config ~/prod.properties --pin-cluster-id --protected",
        "kctl profile add audit --bootstrap-server kafka:9093 --property security.protocol=SSL --read-only",
        "kctl profile add stage --bootstrap-server kafka:9093 --property 'ssl.keystore.password=${env:STAGE_PASSWORD}'",
    ),
)
@shows(ProfileRow)
def add(
    ctx: typer.Context,
    name: Annotated[str, NAME],
    *,
    bootstrap_server: Annotated[
        str | None,
        typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT[,...]", help="Brokers to connect to first."),
    ] = None,
    command_config: Annotated[
        str | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="Properties file with client settings.  The profile stores its path, not its contents.",
        ),
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="A client property, which overrides that of the file.  Secrets only as references: ${env:NAME},"
            " ${file:PATH:KEY}, ${directory:PATH:NAME}.",
        ),
    ] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", metavar="ID", help="Refuse to work on a cluster with any other id."),
    ] = None,
    pin_cluster_id: Annotated[
        bool, typer.Option("--pin-cluster-id", help="Connect now, and store the id of the cluster as --cluster-id.")
    ] = False,
    protected: Annotated[
        bool, typer.Option("--protected", help="Each change must be confirmed with the name of the profile.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all changes.")] = False,
    default_format: Annotated[
        Format | None, typer.Option("--default-format", help="How to show results without --format.")
    ] = None,
    default_timeout: Annotated[
        str | None, typer.Option("--default-timeout", metavar="DURATION", help="--timeout of commands without it.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the profile of this name.")] = False,
) -> ExitStatus:
    """Store a profile, in $XDG_CONFIG_HOME/kctl/profiles.json, which only its owner can read.

    No command line, and no profile, should contain a password.  Put it into the properties file, whose mode should be
    0600, or into a variable or file that a property refers to.
    """
    run: Invocation = ctx.obj
    properties = parse_pairs(property_, "--property")
    for each, value in properties.items():
        check_given(each, value)
    if cluster_id is not None and pin_cluster_id:
        raise UsageError("--cluster-id and --pin-cluster-id cannot be combined")
    for client in Client:
        check_properties({each: value for each, value in properties.items() if not has_reference(value)}, client)
    if unknown := unknown_names(properties):
        raise UsageError(f"--property: not a property of Kafka's clients: {', '.join(unknown)}")
    if default_timeout is not None:
        duration_ms(default_timeout, "--default-timeout")
    path = None if command_config is None else os.path.abspath(os.path.expanduser(command_config))
    given = {**(read_properties(path) if path else {}), **properties}
    if bootstrap_server is not None:
        parse_servers(bootstrap_server, given.get("security.protocol", PLAINTEXT))
    if bootstrap_server is None and "bootstrap.servers" not in given:
        raise UsageError("give --bootstrap-server, or a file with bootstrap.servers as --command-config")
    profile = Profile(
        name=checked_name(name),
        bootstrap_servers=bootstrap_server,
        command_config=path,
        properties=properties,
        cluster_id=cluster_id,
        protected=protected,
        read_only=read_only,
        format=default_format,
        timeout=default_timeout,
    )
    if pin_cluster_id:
        profile = profile._replace(cluster_id=_present_id(run, profile))

    def edit(profiles: Profiles) -> Profiles:
        if name in profiles.profiles and not replace:
            raise UsageError(f"there is a profile '{name}' already; --replace replaces it")
        return profiles.with_profile(profile)

    return change(run, edit, name)


def _present_id(run: Invocation, profile: Profile) -> str:
    """The id of the cluster to which the profile connects."""
    connecting = Invocation(run.console)
    connecting.profile = profile
    found = connecting.on_cluster(lambda client: client.metadata([])).cluster_id
    if found is None:
        raise KctlError("the cluster has no id (before Kafka 0.10.1)")
    return found
