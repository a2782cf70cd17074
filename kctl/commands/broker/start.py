"""`kctl broker start`."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from kctl.commands.broker.environment import properties_of_environment
from kctl.commands.broker.readiness import Readiness, ReadyDescriptor, ReadyFile, ServingItem
from kctl.commands.broker.registry_process import RegistryProcess, SchemaRegistryPort
from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.log_format import LogFormatOption, log_format_of
from kctl.commands.frame.output.shown import shows_one
from kctl.errors import KctlError, UsageError
from kctl.output.log_lines import LogFormat
from kctl.output.quantities import INT32_MAX, PORT_MAX
from kctl.server.process.data_folder import DataFolder, RunningBroker, brokers_in
from kctl.server.process.machine.layout import MachineOptions, unexpected_data
from kctl.server.process.starting import DEFAULT_PORT, TEST_CONTROL, StartOptions, is_detached, start_detached
from kctl.system.operating_system import is_process_alive

if TYPE_CHECKING:
    from kctl.server.process.secure_setup import SecureSetup
    from kctl.server.process.test_control.control import BrokerControl


# The options of several brokers of one machine, for `kctl broker start` and `kctl broker check`.


PROCESSES_MAX = 128

Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        help="Brokers to run as one service, one for each core.  Default: one broker.",
        min=1,
        max=PROCESSES_MAX,
    ),
]
PortStep = Annotated[
    int | None,
    typer.Option(
        "--port-step",
        metavar="N",
        help="With --processes: distance between the ports of one broker and the next.  Default: 1.",
        min=1,
        max=PORT_MAX,
    ),
]
StopWith = Annotated[
    int | None,
    typer.Option(
        "--stop-with",
        metavar="PID",
        help="Stop when this process has ended, also if it was killed.",
        min=1,
        max=INT32_MAX,
    ),
]


def running_process(pid: int | None) -> int | None:
    """Return the value of --stop-with.  Raises UsageError if there is no such process."""
    if pid is not None and not is_process_alive(pid):
        raise UsageError(f"--stop-with {pid}: there is no such process")
    return pid


def machine_of(service: StartOptions, processes: int | None, port_step: int | None) -> MachineOptions | None:
    """Return the options of several brokers; None for a single broker.  Raises UsageError."""
    if processes is None:
        if port_step is not None:
            raise UsageError("--port-step: only --processes starts several brokers")
        return None
    return MachineOptions(service, processes, 1 if port_step is None else port_step, socket.gethostname())


# The options of `kctl broker` that set properties.


ConfigFile = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Kafka's server.properties.")]
FromEnvironment = Annotated[
    bool,
    typer.Option(
        "--from-env",
        help="Read properties from environment variables as Kafka's container images do: KAFKA_LOG_DIRS is log.dirs.  "
        "Overrides the file.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("-o", "--override", metavar="NAME=VALUE", help="Set a property; overrides the file."),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", metavar="N", help="Port on 127.0.0.1, 0 for a free one.  Default: 9092.", max=PORT_MAX, min=0
    ),
]


_IBP, _PROTOCOLS = "inter.broker.protocol.version", "group.coordinator.rebalance.protocols"
_PROPERTIES_OF_RELEASES: dict[str, dict[str, str]] = {
    **{release: {_IBP: release} for release in ("1.1", "2.0", "2.4")},
    "0.11": {_IBP: "0.11.0"},
    "3.9": {_PROTOCOLS: "classic,consumer"},
    "4.3": {_PROTOCOLS: "classic,consumer,share,streams"},
}
"""What --as-version sets beside the release: what older brokers do not have, and newer ones have by default."""


def overrides_of(
    given: list[str],
    *,
    port: int | None,
    zookeeper: str | None = None,
    metrics_port: int | None = None,
    as_version: str | None = None,
) -> dict[str, str]:
    """Return the properties of -o and of the options that stand for properties.  Raises UsageError.

    What `as_version` stands for beside the release can be set by -o.
    """
    overrides: dict[str, str] = {}
    for property_text in given:
        name, equals, value = property_text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-o {property_text}: properties are given as name=value")
        overrides[name.strip()] = value
    for name, value in _PROPERTIES_OF_RELEASES.get(as_version or "", {}).items():
        overrides.setdefault(name, value)
    shorthands: tuple[tuple[str, str, str | None], ...] = (
        ("--port", "listeners", f"PLAINTEXT://127.0.0.1:{port}" if port is not None else None),
        ("--zookeeper", "zookeeper.connect", zookeeper),
        ("--as-version", "served.release", as_version),
        ("--metrics-port", "metrics.port", None if metrics_port is None else str(metrics_port)),
    )
    for option, name, text in shorthands:
        if text is not None:
            if name in overrides:
                raise UsageError(f"{option} and -o {name}= contradict each other: give one of them")
            overrides[name] = text
    return overrides


# The --data-dir option of `kctl broker` and its default.


DataDir = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Folder of the broker.  Default: kctl/broker under XDG_DATA_HOME, which is ~/.local/share.",
    ),
]


def data_dir_of(given: str | None) -> Path:
    """Return the absolute path of the data folder: the value of --data-dir, or its default if that is None."""
    if given:
        return Path(given).expanduser().absolute()
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "kctl" / "broker"


verbs = typer.Typer(add_completion=False)


@verbs.command(
    "start",
    cls=LocalCommand,
    epilog=examples(
        "kctl broker start",
        "kctl broker start --data-dir /srv/kafka --port 9092 -o num.partitions=3",
        "kctl broker start --secure --host kafka.example.com",
        "kctl broker start --data-dir $(mktemp -d) --as-version 1.1",
        "KAFKA_LISTENERS=PLAINTEXT://:9092 kctl broker start --from-env",
        "kctl broker start --config server.properties --zookeeper zk1:2181,zk2:2181/kafka",
        "kctl broker start --config server.properties --data-dir /srv/kafka --processes 4",
        "kctl broker start --data-dir $(mktemp -d) --port 0 --stop-with $$ &",
        "kctl broker start --data-dir $(mktemp -d) --port 0 --detach --format json | jq -r .bootstrap_servers",
    ),
)
@shows_one(ServingItem)
def start(
    ctx: typer.Context,
    *,
    config: ConfigFile = None,
    from_env: FromEnvironment = False,
    override: Overrides = None,
    data_dir: DataDir = None,
    port: Port = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT[,...][/CHROOT]",
            help="ZooKeeper ensemble to use.  Default: zookeeper.connect, else an embedded service.",
        ),
    ] = None,
    embedded_zookeeper_port: Annotated[
        int | None,
        typer.Option(
            "--embedded-zookeeper-port",
            metavar="N",
            help="Port of the embedded service.  Default: a free one.",
            max=PORT_MAX,
            min=0,
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="Use TLS and SCRAM, with certificates and a user that are made at the first start."
        ),
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="With --secure: another host name for the certificate."),
    ] = None,
    as_version: Annotated[
        Literal["0.11", "1.1", "2.0", "2.4", "2.8", "3.9", "4.3"] | None,
        typer.Option(
            "--as-version",
            metavar="RELEASE",
            help="For tests of clients: advertise and serve only the APIs and versions of this release of Kafka.",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="N",
            help="Port of the HTTP endpoint for Prometheus on 127.0.0.1, 0 for a free one.  Default: no endpoint.",
            max=PORT_MAX,
            min=0,
        ),
    ] = None,
    schema_registry_port: SchemaRegistryPort = None,
    processes: Processes = None,
    port_step: PortStep = None,
    stop_with: StopWith = None,
    ready_file: ReadyFile = None,
    ready_fd: ReadyDescriptor = None,
    log_format: LogFormatOption = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="Run in the background, with the log in DATA_DIR/broker.out; returns when the broker accepts "
            "connections.",
        ),
    ] = False,
) -> ExitStatus:
    """Run a broker until it is stopped.

    Properties have Kafka's names.  Without the address of a ZooKeeper ensemble, the broker runs an embedded, durable
    ZooKeeper service and has id 0.  It listens on 127.0.0.1 only, unless `listeners` is set.  Ctrl-C and SIGTERM cause
    a controlled shutdown.

    --secure is for development: it creates a certificate authority, a certificate and a user `admin` in
    DATA_DIR/security, and writes client properties there.  Properties that are set explicitly, such as `listeners`,
    take precedence.

    --from-env is for containers: a node of KRaft that is broker and controller becomes a broker with an embedded
    ZooKeeper, and KAFKA_ADVERTISED_LISTENERS without KAFKA_LISTENERS listens on all interfaces.

    --processes runs several brokers as one service, because one broker uses one core.  Broker K of them, from 0, has
    broker.id + K, the ports + K, and the folder DATA_DIR/process-K.  The host name of the machine is the broker.rack of
    all, unless it is set.  A broker that ends is started again.

    --schema-registry-port runs 'kctl registry serve' beside the broker, in a process of its own that ends with it.

    --stop-with is for tests and scripts: the broker stops, as after SIGTERM, when that process has ended, whatever has
    ended it.  In a shell script, `--stop-with $$` is the script itself.

    --as-version is for tests of clients: 0.11, 1.1, 2.0, 2.4, 2.8, 3.9 or 4.3. ApiVersions has what that release has,
    other versions are refused, and the error codes are those of that release. It also sets
    `inter.broker.protocol.version` for releases before 2.8, and the protocols of groups that 3.9 and 4.3 have.

    When the broker accepts connections, one JSON object with all addresses is written to --ready-file, which does not
    exist before, to --ready-fd, and with --format json to standard output.
    """
    run: Invocation = ctx.obj
    folder = DataFolder(data_dir_of(data_dir))
    options = StartOptions(
        folder=folder,
        file_properties=(run.secret_properties(config) if config is not None else {})
        | (_properties_of_environment(run) if from_env else {}),
        overrides=overrides_of(
            override or [],
            port=None if secure else port,
            zookeeper=zookeeper,
            metrics_port=metrics_port,
            as_version=as_version,
        ),
        embedded_zookeeper_port=embedded_zookeeper_port,
        port=port,
        log_format=log_format_of(log_format),
        stop_with=running_process(stop_with),
    )
    if host and not secure:
        raise UsageError("--host: only --secure makes a certificate")
    if from_env and port is None and "listeners" not in options.given:
        # In a container nobody could connect to the default, which is the loopback address.
        raise UsageError("--from-env: set KAFKA_LISTENERS or KAFKA_ADVERTISED_LISTENERS to the addresses to listen on")
    if secure:
        options = replace(options, secure=_setup(options, processes, port_step, host or []))
    readiness = Readiness(ready_file, ready_fd)
    machine = machine_of(options, processes, port_step)
    if machine is not None:
        machine.processes()  # Reports ports that are equal, before a process is started.
    if schema_registry_port is not None and (detach or processes is not None):
        raise UsageError(
            "--schema-registry-port cannot be combined with --detach and --processes: run 'kctl registry serve'"
        )
    if detach:
        words = [] if machine is None else ["--processes", str(machine.count), "--port-step", str(machine.port_step)]
        start_detached(options, words=words, on_warning=run.console.warn)
        _show_next_steps(run, folder, options.secure)
        readiness.tell(run, folder, _client_properties(options.secure))
        return ExitStatus.DONE
    log_stream = sys.stderr if not run.console.quiet else None
    # The command that waits for a detached process shows them.
    is_shown = options.log_format is LogFormat.TEXT and not is_detached()

    registry = None if schema_registry_port is None else RegistryProcess(folder, schema_registry_port)

    def on_serving(running: RunningBroker) -> None:
        _show_next_steps(run, folder, options.secure, is_shown=is_shown)
        client_properties = _client_properties(options.secure)
        if registry is None:
            readiness.tell(run, folder, client_properties)
            return
        registry.start(
            running.address,
            client_properties,
            lambda url: readiness.tell(run, folder, client_properties, url),
            is_quiet=run.console.quiet,
        )

    if machine is None:
        from kctl.server.process import process  # noqa: PLC0415 - the whole broker, which runs in another process with --detach

        _refuse_data_of_several(options)
        try:
            process.run(
                options,
                on_serving=on_serving,
                on_warning=run.console.warn,
                log_stream=log_stream,
                control=_control_of_test(options),
            )
        finally:
            if registry is not None:
                registry.stop()
    else:
        _run_machine(machine, on_serving=on_serving, on_warning=run.console.warn, log_stream=log_stream)
    return ExitStatus.DONE


def _control_of_test(options: StartOptions) -> BrokerControl | None:
    """Return the control that a test has asked for; None in all other brokers.  Raises KctlError."""
    path = os.environ.pop(TEST_CONTROL, None)
    if path is None:
        return None
    from kctl.server.process.test_control.control import BrokerControl  # noqa: PLC0415 - in brokers of tests only

    return BrokerControl(path, stop_with=options.stop_with)


def _properties_of_environment(run: Invocation) -> dict[str, str]:
    """Return the properties of KAFKA_... variables, and write remarks about them.  Raises ConfigError."""
    found = properties_of_environment(os.environ)
    for note in found.notes:
        run.console.warn(f"--from-env: {note}")
    return found.properties


def _client_properties(secure: SecureSetup | None) -> Path | None:
    return None if secure is None else secure.client_properties


def _refuse_data_of_several(options: StartOptions) -> None:
    problem = unexpected_data(options.folder, None, options.given)
    if problem is not None:
        raise KctlError(problem)


def _run_machine(
    machine: MachineOptions,
    *,
    on_serving: Callable[[RunningBroker], None],
    on_warning: Callable[[str], None],
    log_stream: TextIO | None,
) -> None:
    from kctl.server.process import process  # noqa: PLC0415 - the whole broker
    from kctl.server.process.machine.supervisor import Supervisor  # noqa: PLC0415 - imports prometheus_client

    process.set_up(machine.service, machine.processes(), on_warning=on_warning, log_stream=log_stream)
    process.run_host(
        lambda: Supervisor(machine, is_quiet=log_stream is None),
        machine.service.properties(),
        on_serving=on_serving,
        stop_with=machine.service.stop_with,
    )


def _setup(options: StartOptions, processes: int | None, port_step: int | None, hosts: list[str]) -> SecureSetup:
    """Make or renew the files of --secure, unless the broker cannot start.  Raises KctlError."""
    from kctl.server.process.preflight import port_problems  # noqa: PLC0415 - imports the whole broker
    from kctl.server.process.secure_setup import prepare  # noqa: PLC0415 - imports cryptography

    options.folder.refuse_if_locked()
    listeners = {} if "listeners" in options.given else {"listeners": f"PLAINTEXT://127.0.0.1:{options.secure_port}"}
    planned = replace(options, overrides={**options.overrides, **listeners})
    machine = machine_of(planned, processes, port_step)
    started = [planned] if machine is None else machine.processes()
    for broker_options in started:
        if broker_options.folder.is_locked():
            continue  # With --processes: a broker whose supervisor was killed, which is waited for.
        for problem in port_problems(broker_options.examine().config):
            raise KctlError(problem.message)
    return prepare(options.folder.security.absolute(), hosts)


def _show_next_steps(run: Invocation, folder: DataFolder, secure: SecureSetup | None, *, is_shown: bool = True) -> None:
    """Write the files of --secure, and what to try next; not between log lines in JSON."""
    kctl = _own_command()
    addresses = ",".join(served.address for _, served in brokers_in(folder) if served is not None)
    where = "" if addresses == f"127.0.0.1:{DEFAULT_PORT}" else f" --bootstrap-server {addresses}"
    if secure is not None:
        secured = (
            served.listeners.get("SASL_SSL", served.address) for _, served in brokers_in(folder) if served is not None
        )
        secure.write_client_files(",".join(secured))
        where = f" --command-config {shlex.quote(str(secure.client_properties))}"
    if not is_shown:
        return
    if secure is not None:
        run.console.note(f"client properties: {secure.client_properties}, for PKCS12: {secure.java_properties}")
    running = folder.running()
    if running is not None and running.metrics_url:
        run.console.note(f"metrics: {running.metrics_url}")
    for line in (
        f"broker serving on {addresses}, data in {folder.path}; try:",
        f"  {kctl} topics create hello --partitions 3{where}",
        f"  echo 'first record' | {kctl} produce hello{where}",
        f"  {kctl} consume hello{where}",
    ):
        run.console.note(line)


def _own_command() -> str:
    """Return the command that runs this kctl in the same shell; it is only `kctl` if that is on the PATH."""
    if shutil.which("kctl"):
        return "kctl"
    script = Path(sys.executable).with_name("kctl")
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m kctl"
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))
