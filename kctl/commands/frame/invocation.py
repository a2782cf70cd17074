"""The context of a running command: where to show results and which cluster to connect to."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.connections.guard import Guard, SentChanges
from kctl.client.connections.transport import Budget
from kctl.client.settings import client_settings, parse_resolved
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.options.parameters import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_MS, shown_value
from kctl.commands.frame.options.values import parse_pair
from kctl.commands.frame.profiles.profile_use import profile_in_use, resolved_properties, secret_files
from kctl.commands.frame.profiles.secrets import exposed_files, is_secret, read_properties
from kctl.errors import UsageError
from kctl.output.quantities import INT32_MAX

if TYPE_CHECKING:
    import typer

    from kctl.client.connections.transport import Security
    from kctl.client.settings import ClientSettings
    from kctl.commands.frame.profiles.profile import Profile
    from kctl.output.console import Console, TypedRow

T = TypeVar("T")

_DENIED = "_AUTHORIZATION_FAILED"


class Invocation:
    """One run of one command.

    The precedence of settings is: option, environment, --command-config, profile, default.
    """

    def __init__(self, console: Console, given: dict[str, Any] | None = None) -> None:
        self.console = console
        self._given = given or {}
        self._budget: Budget | None = None
        self._properties: dict[str, str] | None = None
        self._security: Security | None = None
        self._exposed: set[str] = set()
        self._reported: set[str] = set()
        """What has been said about the properties."""
        self._reads_environment = True
        self._controllers: str | None = None
        self._is_authorized = False
        self.denied: list[TypedRow] = []
        """Rows about items that the user lacks a permission for."""
        self.changes: SentChanges | None = None
        """Records the requests that change something; None for commands that change nothing, and once
        the command itself has shown what was done when it was interrupted."""

    def again(self) -> Invocation:
        """Return the invocation of another round of the same command: --timeout starts again."""
        following = Invocation(self.console, self._given)
        following.profile = self.profile
        following._controllers = self._controllers
        following._reported = self._reported
        return following

    def of_side(self, bootstrap_server: str | None, command_config: str | None, profile: str | None) -> Invocation:
        """Return the invocation for one of two clusters, from its own options; without any, this invocation.

        Settings of --command-config and --profile, which may contain secrets, apply only to a side without own options.
        """
        if bootstrap_server is None and command_config is None and profile is None:
            return self
        side = Invocation(
            self.console,
            {
                **self._given,
                "bootstrap_server": bootstrap_server,
                "command_config": command_config,
                "command_property": None,
                "profile": profile,
            },
        )
        side._reads_environment = False
        if bootstrap_server is None and "bootstrap.servers" not in side.client_properties() and side.profile is None:
            side._given["bootstrap_server"] = self._servers
            # The same cluster as without the side's options, so that the same is allowed there.
            side.profile = self.profile
        return side

    @functools.cached_property
    def profile(self) -> Profile | None:
        """The profile that applies.  Raises UsageError."""
        if not self._reads_environment and not self._given.get("profile"):
            return None
        return profile_in_use(
            self._given.get("profile"),
            os.environ,
            other_servers=lambda: self._bootstrap_servers or self._file_properties.get("bootstrap.servers"),
            note=self.console.note,
        )

    @property
    def debug(self) -> bool:
        """True with --debug: unexpected errors show a traceback."""
        return bool(self._given.get("debug"))

    def client_settings(self) -> ClientSettings:
        """Return the bootstrap servers, timeout and security.  Raises UsageError and ConfigError."""
        timeout = self._given.get("timeout")
        if timeout is None and self.profile is not None and self.profile.timeout:
            timeout = Duration(self.profile.timeout)
        properties = self.client_properties()
        self._report_unknown(properties)
        settings = client_settings(
            bootstrap_servers=self._controllers or self._servers,
            properties=properties,
            security=self._security_of(properties),
            timeout_ms=None if timeout is None else timeout_of(timeout, "--timeout"),
            default_servers=DEFAULT_BOOTSTRAP_SERVER,
            default_timeout_ms=DEFAULT_TIMEOUT_MS,
            resolved=self._resolved,
        )
        if self._controllers is not None:
            settings = settings._replace(are_controllers=True)
        if self.profile is None:
            return settings if self.changes is None else settings._replace(guard=Guard(changes=self.changes))
        return settings._replace(guard=self._guard(self.profile))

    def at_controllers(self, servers: str | None) -> None:
        """Connect to these controllers instead of brokers (--bootstrap-controller); None for brokers.

        Raises UsageError if --bootstrap-server is given as well.
        """
        if servers is not None and self._given.get("bootstrap_server"):
            raise UsageError("--bootstrap-server and --bootstrap-controller exclude each other")
        self._controllers = servers

    def _guard(self, profile: Profile) -> Guard:
        """Return the checks of the client for the profile, even if a command does not call `authorize_change`."""
        refusal = None
        if profile.read_only:
            refusal = f"the profile '{profile.name}' is read-only: a request that changes the cluster was not sent"
        elif profile.protected and not self._is_authorized:
            refusal = f"the profile '{profile.name}' is protected, and the change was not confirmed"
        return Guard(profile.cluster_id, refusal, self.changes)

    def authorize_change(self, command: str) -> None:
        """Return if the profile allows that `command` changes the cluster.  Raises Refused.

        A protected profile requires its name, from --confirm or from the terminal.
        """
        given, profile = self._given.get("confirm"), self.profile
        if given is not None and (profile is None or given != profile.name):
            used = (
                "no profile applies; leave it out, or add --profile"
                if profile is None
                else f"the profile '{profile.name}' applies"
            )
            raise Refused(f"--confirm {given} does not confirm this change: {used}")
        if profile is None:
            return
        if profile.read_only:
            raise Refused(f"the profile '{profile.name}' is read-only: '{command}' would change the cluster")
        if profile.protected and given is None:
            answer = self.console.ask(f"The profile '{profile.name}' is protected.  Its name confirms '{command}':")
            self.restart_timeout()
            if answer is None:
                raise Refused(f"the profile '{profile.name}' is protected; repeat with --confirm {profile.name}")
            if answer != profile.name:
                raise Refused(f"cancelled: '{answer}' is not the name of the profile, {profile.name}")
        self._is_authorized = True

    def _security_of(self, properties: dict[str, str]) -> Security | None:
        """TLS and SASL of --command-config; warns about files with secrets that all users can read."""
        if "security.protocol" not in properties:
            return None
        from kctl.client.connections.security import client_security  # noqa: PLC0415 - most commands do without

        if self._security is None and (security := client_security(properties)) is not None:
            self._security = security
            path, more = self.config_file or "", security.secret_files
            if self.profile is not None and not path:
                path, more = self.profile.command_config or "", (*more, *secret_files(self.profile))
            self._warn_of_exposure(os.path.expanduser(path), properties, more)
        return self._security

    def secret_properties(self, path: str) -> dict[str, str]:
        """Return the properties in a file that the user has named; warn if all users can read its secrets.

        Raises UsageError.
        """
        properties = read_properties(path)
        self._warn_of_exposure(path, properties)
        return properties

    def _warn_of_exposure(self, path: str, properties: dict[str, str], more: tuple[str, ...] = ()) -> None:
        """Warn once about each file with secrets that all users can read."""
        for exposed in exposed_files(path, properties, more):
            if exposed not in self._exposed:
                self._exposed.add(exposed)
                name = shlex.quote(exposed)
                self.console.warn(f"{exposed} contains secrets, and every user can read it; run: chmod 600 {name}")

    def cluster_options(self) -> str:
        """Return the options of this command line that select the cluster, quoted for another command line."""
        names = ("bootstrap_server", "command_config", "profile")
        given = {name: self._given[name] for name in names if self._given.get(name)}
        if self._controllers is not None:
            given["bootstrap_controller"] = self._controllers
        options = "".join(
            f" --command-property {shlex.quote(pair)}" for pair in self._given.get("command_property") or ()
        )
        options += "".join(f" --{name.replace('_', '-')} {shlex.quote(value)}" for name, value in given.items())
        return options + "".join(f" --resolve {shlex.quote(pair)}" for pair in self._given.get("resolve") or ())

    def client_properties(self) -> dict[str, str]:
        """Return the properties of --command-property, and of --command-config or else the profile.

        Raises UsageError.
        """
        if self.config_file or self.profile is None:
            return {**self._file_properties, **self._given_properties}
        if self._properties is None:
            self._properties = resolved_properties(self.profile)
        return {**self._properties, **self._given_properties}

    def producer_properties(self) -> dict[str, str]:
        """Return the properties, with those of Kafka's producer checked.  Raises UsageError and ConfigError."""
        return self._checked("PRODUCER")

    def consumer_properties(self) -> dict[str, str]:
        """Return the properties, with those of Kafka's consumer checked.  Raises UsageError and ConfigError."""
        return self._checked("CONSUMER")

    def _checked(self, client: str) -> dict[str, str]:
        properties = self.client_properties()
        if properties:
            from kctl.client.properties.table import Client, check_properties  # noqa: PLC0415 - most commands have none

            check_properties(properties, Client[client])
        return properties

    def note_unused(self, command: str, *options: str) -> None:
        """Note the given properties that other commands obey and this one, with these options, does not."""
        properties = self.client_properties()
        if properties:
            from kctl.client.properties.table import not_obeyed  # noqa: PLC0415 - most commands have none

            if names := not_obeyed(properties, command, *options):
                self.note_once(f"kctl {command} does not use {', '.join(names)} of {self._properties_source}")

    def note_once(self, text: str) -> None:
        """Write a note, unless an earlier round of the same command has written it."""
        if text not in self._reported:
            self._reported.add(text)
            self.console.note(text)

    def setting(self, ctx: typer.Context, option: str, name: str) -> str:
        """Return the value of an option that is given, else of the property `name`, else the default of the option.

        The property must have been checked.
        """
        source = ctx.get_parameter_source(option)
        given = self.client_properties().get(name)
        if given is None or (source is not None and source.name == "COMMANDLINE"):
            return shown_value(ctx.params[option])
        return given.strip()

    def _report_unknown(self, properties: dict[str, str]) -> None:
        """Warn of names that no client of Kafka has, as Kafka's tools do."""
        if not properties:
            return
        from kctl.client.properties.table import unknown_names  # noqa: PLC0415 - most commands have none

        unknown = unknown_names(properties)
        text = f"{self._properties_source}: not a property of Kafka's clients, and ignored: {', '.join(unknown)}"
        if unknown and text not in self._reported:
            self._reported.add(text)
            self.console.warn(text)

    @property
    def _properties_source(self) -> str:
        """The file or the profile that the properties are from."""
        if self.config_file or self.profile is None:
            return self.config_file or "--command-property"
        return f"the profile '{self.profile.name}'"

    @functools.cached_property
    def _file_properties(self) -> dict[str, str]:
        """The properties of --command-config; read once, because the file may be a pipe."""
        return self.secret_properties(self.config_file) if self.config_file else {}

    @functools.cached_property
    def _given_properties(self) -> dict[str, str]:
        """The properties of --command-property.  Raises UsageError."""
        pairs = dict(parse_pair(text) for text in self._given.get("command_property") or ())
        for name in pairs:
            if is_secret(name):
                raise UsageError(
                    f"--command-property {name}: other users of this machine can see a secret on a command line; write "
                    "it into a file for --command-config"
                )
        return pairs

    @property
    def _servers(self) -> str | None:
        """The bootstrap servers; None for the default."""
        properties = {**self._file_properties, **self._given_properties}
        given = self._bootstrap_servers or properties.get("bootstrap.servers")
        return given or (self.profile.bootstrap_servers if self.profile else None)

    @property
    def _bootstrap_servers(self) -> str | None:
        return self._given.get("bootstrap_server") or self._from_environment("KCTL_BOOTSTRAP_SERVER")

    @property
    def _resolved(self) -> dict[str, str] | None:
        """The addresses of --resolve, else of the environment; None for those of the properties."""
        given = self._given.get("resolve")
        if given:
            return parse_resolved(",".join(given), "--resolve")
        variable = self._from_environment("KCTL_RESOLVE")
        return parse_resolved(variable, "KCTL_RESOLVE") if variable else None

    @property
    def config_file(self) -> str | None:
        """The file of --command-config."""
        return self._given.get("command_config") or self._from_environment("KCTL_COMMAND_CONFIG")

    def _from_environment(self, name: str) -> str | None:
        return os.environ.get(name) if self._reads_environment else None

    def on_cluster(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Run `work` with a client on blocking sockets, without an event loop, then close the client.

        All calls of this method and of `on_brokers` share one --timeout.
        """
        settings = self.client_settings()
        budget = self._begun_budget(settings)

        async def main() -> T:
            async with ClusterClient(settings, BlockingTransport(), budget) as client:
                return await work(client)

        return run_blocking(main())

    def on_brokers(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Like `on_cluster`, on an event loop: requests to several brokers run concurrently."""
        return self._on_event_loop(work, self._begun_budget(self.client_settings()))

    def on_cluster_concurrently(
        self, work: Callable[[ClusterClient], Awaitable[T]], *, ends_with_reader: bool = False
    ) -> T:
        """Run long work on an event loop: --timeout applies to each of its operations, not to the whole.

        With `ends_with_reader` it ends when the reader of stdout leaves, with ReaderLeft.
        """
        try:
            return self._on_event_loop(work, None, ends_with_reader=ends_with_reader)
        finally:
            self._budget = None

    def _begun_budget(self, settings: ClientSettings) -> Budget:
        """Return the budget of --timeout, which starts with the first call."""
        if self._budget is None:
            self._budget = Budget(lambda: int(monotonic() * 1000))
            self._budget.begin(settings.timeout_ms)
        return self._budget

    def _on_event_loop(
        self, work: Callable[[ClusterClient], Awaitable[T]], budget: Budget | None, *, ends_with_reader: bool = False
    ) -> T:
        import asyncio  # noqa: PLC0415 - most commands need no event loop

        from kctl.client.connections.asyncio_transport import AsyncioTransport  # noqa: PLC0415 - same
        from kctl.commands.frame.termination import read_by_someone, terminable  # noqa: PLC0415 - same

        settings = self.client_settings()
        task: asyncio.Task[T] | None = None

        async def main() -> T:
            nonlocal task
            task = asyncio.current_task()
            async with ClusterClient(settings, AsyncioTransport(), budget) as client:
                return await work(client)

        try:
            return asyncio.run(terminable(read_by_someone(main()) if ends_with_reader else main()))
        except KeyboardInterrupt:
            if task is not None and task.done() and not task.cancelled():
                task.exception()  # Otherwise asyncio logs it with a traceback when the task is freed.
            raise

    @property
    def has_consent(self) -> bool:
        """True if the command line confirms the change, with --yes or the name of a protected profile."""
        return bool(self._given.get("yes") or (self._is_authorized and self._given.get("confirm")))

    def consent(self, question: str) -> None:
        """Return if the user confirmed, on the command line or on the terminal.  Raises Refused otherwise."""
        if self.has_consent:
            return
        confirmed = self.console.confirm(question)
        self.restart_timeout()
        if confirmed is None:
            raise Refused("confirmation required: there is no terminal; repeat with --yes")
        if not confirmed:
            raise Refused("cancelled: not confirmed")

    def restart_timeout(self) -> None:
        """Start --timeout again with the next call: the time for the user's input does not count."""
        self._budget = None

    def status_of(self, rows: Iterable[TypedRow]) -> ExitStatus:
        """FAILED if the field `error` of any row is set; keep those that were denied for `denied`."""
        failed = [row for row in rows if getattr(row, "error", None)]
        self.denied += [row for row in failed if str(getattr(row, "error", "")).endswith(_DENIED)]
        return ExitStatus.FAILED if failed else ExitStatus.DONE


def timeout_of(duration: Duration, option: str) -> int:
    """Return the time in ms that an option gives a cluster to respond.  Raises UsageError."""
    if not 0 < duration <= INT32_MAX:
        raise UsageError(f"{option} must be greater than 0 and at most {INT32_MAX} ms (24 days), not '{duration.text}'")
    return duration
