"""The options of several brokers of one machine, for `kctl broker start` and `kctl broker check`."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from kctl.errors import UsageError
from kctl.integers import INT32_MAX, PORT_MAX
from kctl.operating_system import is_process_alive
from kctl.server.machine.layout import MachineOptions
from kctl.server.process import StartOptions

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
    """The value of --stop-with.  Raises UsageError if there is no such process."""
    if pid is not None and not is_process_alive(pid):
        raise UsageError(f"--stop-with {pid}: there is no such process")
    return pid


def machine_of(service: StartOptions, processes: int | None, port_step: int | None) -> MachineOptions | None:
    """The options of several brokers; None for a single broker.  Raises UsageError."""
    if processes is None:
        if port_step is not None:
            raise UsageError("--port-step: only --processes starts several brokers")
        return None
    return MachineOptions(service, processes, 1 if port_step is None else port_step, socket.gethostname())
