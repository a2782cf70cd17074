"""`kctl broker start`."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from kctl.commands.broker.data_dir import DataDir, data_dir_of
from kctl.commands.broker.given_properties import ConfigFile, Overrides, Port, overrides_of
from kctl.commands.broker.processes import PortStep, Processes, StopWith, machine_of, running_process
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.log_format import LogFormatOption, log_format_of
from kctl.errors import KctlError, UsageError
from kctl.integers import PORT_MAX
from kctl.log_output.formats import LogFormat
from kctl.server import process
from kctl.server.background import is_detached
from kctl.server.data_folder import DataFolder, RunningBroker, brokers_in
from kctl.server.machine.layout import MachineOptions, unexpected_data
from kctl.server.ports import port_problems

if TYPE_CHECKING:
    from kctl.server.secure_setup import SecureSetup

app = typer.Typer(add_completion=False)


@app.command(
    "start",
    cls=LocalCommand,
    epilog=examples(
        "kctl broker start",
        "kctl broker start --data-dir /srv/kafka --port 9092 -o num.partitions=3",
        "kctl broker start --secure --host kafka.example.com",
        "kctl broker start --config server.properties --zookeeper zk1:2181,zk2:2181/kafka",
        "kctl broker start --config server.properties --data-dir /srv/kafka --processes 4",
        "kctl broker start --data-dir $(mktemp -d) --port 0 --stop-with $$ &",
    ),
)
def start(
    ctx: typer.Context,
    *,
    config: ConfigFile = None,
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
    processes: Processes = None,
    port_step: PortStep = None,
    stop_with: StopWith = None,
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

    --processes runs several brokers as one service, because one broker uses one core.  Broker K of them, from 0, has
    broker.id + K, the ports + K, and the folder DATA_DIR/process-K.  The host name of the machine is the broker.rack of
    all, unless it is set.  A broker that ends is started again.

    --stop-with is for tests and scripts: the broker stops, as after SIGTERM, when that process has ended, whatever has
    ended it.  In a shell script, `--stop-with $$` is the script itself.
    """
    run: Invocation = ctx.obj
    folder = DataFolder(data_dir_of(data_dir))
    options = process.StartOptions(
        folder=folder,
        file_properties=run.secret_properties(config) if config is not None else {},
        overrides=overrides_of(
            override or [], port=None if secure else port, zookeeper=zookeeper, metrics_port=metrics_port
        ),
        embedded_zookeeper_port=embedded_zookeeper_port,
        port=port,
        log_format=log_format_of(log_format),
        stop_with=running_process(stop_with),
    )
    if host and not secure:
        raise UsageError("--host: only --secure makes a certificate")
    if secure:
        options = replace(options, secure=_setup(options, processes, port_step, host or []))
    machine = machine_of(options, processes, port_step)
    if machine is not None:
        machine.processes()  # Reports ports that are equal, before a process is started.
    if detach:
        words = [] if machine is None else ["--processes", str(machine.count), "--port-step", str(machine.port_step)]
        process.start_detached(options, words=words, on_warning=run.console.warn)
        _show_next_steps(run, folder, options.secure)
        return ExitStatus.DONE
    log_stream = sys.stderr if not run.console.quiet else None
    # The command that waits for a detached process shows them.
    is_shown = options.log_format is LogFormat.TEXT and not is_detached()

    def on_serving(_: RunningBroker) -> None:
        _show_next_steps(run, folder, options.secure, is_shown=is_shown)

    if machine is None:
        _refuse_data_of_several(options)
        process.run(options, on_serving=on_serving, on_warning=run.console.warn, log_stream=log_stream)
    else:
        _run_machine(machine, on_serving=on_serving, on_warning=run.console.warn, log_stream=log_stream)
    return ExitStatus.DONE


def _refuse_data_of_several(options: process.StartOptions) -> None:
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
    from kctl.server.machine.supervisor import Supervisor  # noqa: PLC0415 - imports prometheus_client

    process.set_up(machine.service, machine.processes(), on_warning=on_warning, log_stream=log_stream)
    process.run_host(
        lambda: Supervisor(machine, is_quiet=log_stream is None),
        machine.service.properties(),
        on_serving=on_serving,
        stop_with=machine.service.stop_with,
    )


def _setup(
    options: process.StartOptions, processes: int | None, port_step: int | None, hosts: list[str]
) -> SecureSetup:
    """Makes or renews the files of --secure, unless the broker cannot start.  Raises KctlError."""
    from kctl.server.secure_setup import prepare  # noqa: PLC0415 - imports cryptography

    options.folder.refuse_if_locked()
    listeners = {} if "listeners" in options.given else {"listeners": f"PLAINTEXT://127.0.0.1:{options.secure_port}"}
    planned = replace(options, overrides={**options.overrides, **listeners})
    machine = machine_of(planned, processes, port_step)
    started = [planned] if machine is None else machine.processes()
    for each in started:
        if each.folder.is_locked():
            continue  # With --processes: a broker whose supervisor was killed, which is waited for.
        for problem in port_problems(each.examine().config):
            raise KctlError(problem.message)
    return prepare(options.folder.security.absolute(), hosts)


def _show_next_steps(run: Invocation, folder: DataFolder, secure: SecureSetup | None, *, is_shown: bool = True) -> None:
    """Writes the files of --secure, and what to try next; not between log lines in JSON."""
    kctl = _own_command()
    addresses = ",".join(each.address for _, each in brokers_in(folder) if each is not None)
    where = "" if addresses == f"127.0.0.1:{process.DEFAULT_PORT}" else f" --bootstrap-server {addresses}"
    if secure is not None:
        secured = (each.listeners.get("SASL_SSL", each.address) for _, each in brokers_in(folder) if each is not None)
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
    """The command that runs this kctl in the same shell; it is only `kctl` if that is on the PATH."""
    if shutil.which("kctl"):
        return "kctl"
    script = Path(sys.executable).with_name("kctl")
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m kctl"
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))
