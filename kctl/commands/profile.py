"""`kctl profile`: store how to connect to clusters, and what is allowed there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Annotated, NamedTuple

import typer

from kctl.client.properties.table import Client, check_properties, unknown_names
from kctl.client.settings import PLAINTEXT, parse_servers
from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation, timeout_of
from kctl.commands.frame.lazy_group import verb_group
from kctl.commands.frame.options.option_types import Duration, Pair
from kctl.commands.frame.options.parameters import Format
from kctl.commands.frame.output.shown import shows, shows_one
from kctl.commands.frame.profiles.profile import Profile, Profiles, change_profiles, checked_name
from kctl.commands.frame.profiles.profile_store import ENVIRONMENT_NAME, load_profiles, profiles_path
from kctl.commands.frame.profiles.secrets import read_properties
from kctl.config.properties import has_reference, is_reference
from kctl.errors import KctlError, UsageError
from kctl.output.console import JSON_ONLY, Column

app = typer.Typer(
    cls=verb_group(__name__, ["add", "use", "list", "show", "rename", "remove"]),
    help="Store how to connect to clusters, and what is allowed there.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


# Which client properties are secrets. Pure.


HIDDEN = "[hidden]"
_SECRET = re.compile(r"password|secret|jaas|token|credential|passphrase|keystore\.(?:key|certificate)", re.IGNORECASE)
_PLACE = re.compile(r"\.(?:location|url|class|type)$|endpoint", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Return whether a property of this name may contain a secret."""
    return _SECRET.search(name) is not None and _PLACE.search(name) is None


def shown(name: str, value: str) -> str:
    """Return the value for people; secrets are hidden, references to them are not."""
    return HIDDEN if is_secret(name) and not is_reference(value) else value


def check_given(name: str, value: str) -> None:
    """Raise UsageError for a secret on the command line, where other users of the machine can read it."""
    if is_secret(name) and not has_reference(value):
        raise UsageError(
            f"{name} is a secret, and other users can read command lines: write it into a file for --command-config, or"
            f" give a reference such as --property '{name}=${{env:VARIABLE}}' or '${{directory:FOLDER:FILE}}'"
        )


# The rows of the verbs of `kctl profile`.


class ProfileRow(NamedTuple):
    """A profile without secrets."""

    profile: str
    current: bool
    bootstrap_servers: Annotated[str | None, Column(wraps=True), "Null if only the file has them."]
    command_config: Annotated[str | None, JSON_ONLY]
    properties: Annotated[dict[str, str], JSON_ONLY]
    cluster_id: str | None
    protected: bool
    read_only: bool
    format: Annotated[str | None, JSON_ONLY]
    timeout: Annotated[str | None, JSON_ONLY]


def profile_row(profile: Profile, profiles: Profiles) -> ProfileRow:
    """Return a profile, in which the values of secrets are hidden."""
    return ProfileRow(
        profile=profile.name,
        current=profile.name == profiles.current,
        bootstrap_servers=profile.bootstrap_servers,
        command_config=profile.command_config,
        properties={name: shown(name, value) for name, value in sorted(profile.properties.items())},
        cluster_id=profile.cluster_id,
        protected=profile.protected,
        read_only=profile.read_only,
        format=profile.format,
        timeout=profile.timeout,
    )


# Arguments of several verbs of `kctl profile`, and the file that they change.


NAME = typer.Argument(help="Name of the profile.", metavar="PROFILE")


def stored() -> Profiles:
    """Return all profiles of the user.  Raises UsageError."""
    return load_profiles(profiles_path(os.environ)) or Profiles()


def change(run: Invocation, edit: Callable[[Profiles], Profiles], name: str | None) -> ExitStatus:
    """Change the stored profiles, and show the one called `name` afterwards.  Raises UsageError."""
    profiles = change_profiles(profiles_path(os.environ), edit)
    rows = [] if name is None else [profile_row(profiles.named(name), profiles)]
    run.console.show(ProfileRow, rows)
    return ExitStatus.DONE


# `kctl profile add`.


verbs = typer.Typer(add_completion=False)


@verbs.command(
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
        list[Pair] | None,
        typer.Option(
            "--property",
            parser=Pair,
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
        Duration | None, typer.Option("--default-timeout", parser=Duration, help="--timeout of commands without it.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the profile of this name.")] = False,
) -> ExitStatus:
    """Store a profile, in $XDG_CONFIG_HOME/kctl/profiles.json, which only its owner can read.

    No command line, and no profile, should contain a password.  Put it into the properties file, whose mode should be
    0600, or into a variable or file that a property refers to.
    """
    run: Invocation = ctx.obj
    properties = dict(property_ or ())
    for key, value in properties.items():
        check_given(key, value)
    if cluster_id is not None and pin_cluster_id:
        raise UsageError("--cluster-id and --pin-cluster-id cannot be combined")
    for client in Client:
        check_properties({key: value for key, value in properties.items() if not has_reference(value)}, client)
    if unknown := unknown_names(properties):
        raise UsageError(f"--property: not a property of Kafka's clients: {', '.join(unknown)}")
    if default_timeout is not None:
        timeout_of(default_timeout, "--default-timeout")
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
        timeout=None if default_timeout is None else default_timeout.text,
    )
    if pin_cluster_id:
        profile = profile._replace(cluster_id=_present_id(run, profile))

    def edit(profiles: Profiles) -> Profiles:
        if name in profiles.profiles and not replace:
            raise UsageError(f"there is a profile '{name}' already; --replace replaces it")
        return profiles.with_profile(profile)

    return change(run, edit, name)


def _present_id(run: Invocation, profile: Profile) -> str:
    """Return the id of the cluster to which the profile connects."""
    connecting = Invocation(run.console)
    connecting.profile = profile
    found = connecting.on_cluster(lambda client: client.metadata([])).cluster_id
    if found is None:
        raise KctlError("the cluster has no id (before Kafka 0.10.1)")
    return found


# `kctl profile list`.


@verbs.command("list", cls=LocalCommand, epilog=examples("kctl profile list", "kctl profile list --format json"))
@shows(ProfileRow)
def list_profiles(ctx: typer.Context) -> ExitStatus:
    """List profiles."""
    run: Invocation = ctx.obj
    profiles = stored()
    run.console.show(ProfileRow, [profile_row(profiles.profiles[name], profiles) for name in sorted(profiles.profiles)])
    return ExitStatus.DONE


# `kctl profile remove`.


@verbs.command("remove", cls=LocalCommand, epilog=examples("kctl profile remove dev"))
@shows(ProfileRow)
def remove(ctx: typer.Context, name: Annotated[str, NAME]) -> ExitStatus:
    """Remove a profile; nothing changes in the cluster, and its properties file remains."""
    run: Invocation = ctx.obj
    return change(run, lambda profiles: profiles.without(name), None)


# `kctl profile rename`.


@verbs.command("rename", cls=LocalCommand, epilog=examples("kctl profile rename dev development"))
@shows(ProfileRow)
def rename(
    ctx: typer.Context,
    name: Annotated[str, NAME],
    new: Annotated[str, typer.Argument(help="Its new name.", metavar="NEW")],
) -> ExitStatus:
    """Rename a profile; the current one stays the current one."""
    run: Invocation = ctx.obj
    return change(run, lambda profiles: profiles.renamed(name, new), new)


# `kctl profile show`.


@verbs.command("show", cls=LocalCommand, epilog=examples("kctl profile show", "kctl profile show prod --format json"))
@shows_one(ProfileRow)
def show(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="Name of the profile.  Default: KCTL_PROFILE, else the current one.", metavar="PROFILE"),
    ] = None,
) -> ExitStatus:
    """Show a profile; secrets among its properties are hidden."""
    run: Invocation = ctx.obj
    profiles = stored()
    chosen = name or os.environ.get(ENVIRONMENT_NAME) or profiles.current
    if chosen is None:
        raise UsageError("there is no current profile; name a profile")
    run.console.show_one(profile_row(profiles.named(chosen), profiles))
    return ExitStatus.DONE


# `kctl profile use`.


@verbs.command("use", cls=LocalCommand, epilog=examples("kctl profile use dev", "kctl profile use --none"))
@shows(ProfileRow)
def use(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name of the profile.", metavar="PROFILE")] = None,
    *,
    none: Annotated[bool, typer.Option("--none", help="Unset the current profile.")] = False,
) -> ExitStatus:
    """Make a profile the current one, which applies to commands that name no other profile or bootstrap servers."""
    run: Invocation = ctx.obj
    if none == (name is not None):
        raise UsageError("name a profile, or give --none")

    def edit(profiles: Profiles) -> Profiles:
        return profiles._replace(current=None if name is None else profiles.named(name).name)

    return change(run, edit, name)
