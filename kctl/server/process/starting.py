"""The options of a broker to start, and its start in a process of its own.

Does not import the broker: that process does.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kctl.config.broker import SINGLE_BROKER_PROPERTIES
from kctl.config.config_loading import Examined, examine
from kctl.config.properties import format_properties
from kctl.errors import KctlError
from kctl.output.log_lines import LogFormat
from kctl.server.process.data_folder import DataFolder, RunningBroker
from kctl.system.operating_system import module_command

if TYPE_CHECKING:
    from kctl.server.process.secure_setup import SecureSetup

DEFAULT_PORT = 9092
_REASON = "kctl: "
_WARNING = "kctl: warning: "
"""Prefixes of the lines that kctl prints for the user who started it."""
DETACHED = "KCTL_BROKER_DETACHED"
"""Environment variable of a process that `start_detached` has started, until it serves."""


TEST_CONTROL = "KCTL_TEST_CONTROL"
"""Environment variable with the path of the socket over which a test controls its broker (`process.test_control`)."""


def is_detached() -> bool:
    """Return whether this process has been started by `start_detached` and does not serve yet."""
    return DETACHED in os.environ


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The options of a broker to start."""

    folder: DataFolder
    file_properties: Mapping[str, str]
    overrides: Mapping[str, str]
    embedded_zookeeper_port: int | None = None
    secure: SecureSetup | None = None
    """TLS and SCRAM that kctl has set up."""
    port: int | None = None
    """The port of the secure listener; None for 9092."""
    log_format: LogFormat = LogFormat.TEXT
    stop_with: int | None = None
    """The process with whose end the broker stops; None for none."""
    process: int | None = None
    """The number of the process among the brokers of this machine, a key of its log lines."""

    @property
    def given(self) -> dict[str, str]:
        """The file's properties and the overrides, which take precedence."""
        return {**self.file_properties, **self.overrides}

    @property
    def secure_port(self) -> int:
        """The port of the secure listener, unless `listeners` is given."""
        return DEFAULT_PORT if self.port is None else self.port

    def properties(self) -> dict[str, str]:
        """Return all properties: the file's, the overrides, and defaults for a single broker."""
        given = self.given
        base: dict[str, str] = {}
        if not given.get("zookeeper.connect", "").strip():
            base.update(SINGLE_BROKER_PROPERTIES)
        if not {"listeners", "port", "host.name"} & given.keys():
            base["listeners"] = f"PLAINTEXT://127.0.0.1:{DEFAULT_PORT}"
        if not {"log.dirs", "log.dir"} & given.keys():
            base["log.dirs"] = str(self.folder.logs)
        if self.secure is not None:
            base.update(self.secure.broker_properties(self.secure_port))
        return {**base, **given}

    def examine(self) -> Examined:
        """Return the configuration of these properties; only properties that the user set are worth a warning."""
        examined = examine(self.properties())
        own = SINGLE_BROKER_PROPERTIES.keys() - self.given.keys()
        warnings = tuple(warning for warning in examined.warnings if warning.partition(":")[0] not in own)
        return replace(examined, warnings=warnings)


def start_detached(
    options: StartOptions, *, words: Sequence[str] = (), on_warning: Callable[[str], None]
) -> RunningBroker:
    """Start a broker in a process of its own and wait until it serves.  Raises KctlError with its error output.

    `words` are further options of the command.

    Properties are passed through a pipe, because any user can read a process's command line and some are passwords.
    """
    command = [*module_command("kctl"), "broker", "start", "--data-dir", str(options.folder.path)]
    command += ["--config", "/dev/stdin", "--log-format", options.log_format]
    if options.embedded_zookeeper_port is not None:
        command += ["--embedded-zookeeper-port", str(options.embedded_zookeeper_port)]
    if options.stop_with is not None:
        command += ["--stop-with", str(options.stop_with)]
    if options.secure is not None:
        command += ["--secure", *([] if options.port is None else ["--port", str(options.port)])]
    child = subprocess.Popen(
        [*command, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, DETACHED: "1"},
        text=True,
    )
    assert child.stdin is not None
    assert child.stderr is not None
    with child.stdin as pipe, suppress(BrokenPipeError):  # The error output of an ended process has the reason.
        pipe.write(format_properties(options.given))
    # The child closes this pipe when it serves or ends.
    error_output = child.stderr.read()
    lines = []
    for line in error_output.splitlines():
        if line.startswith(_WARNING):
            on_warning(line.removeprefix(_WARNING))
        else:
            lines.append(line)
    running = options.folder.running()
    if running is None or running.pid != child.pid:
        status = child.wait()
        reasons = [line.removeprefix(_REASON) for line in lines if line.startswith(_REASON)]
        reason = "\n".join(reasons or lines[-1:])
        raise KctlError(reason or f"the broker ended with status {status}: {options.folder.output} has its log")
    child.returncode = 0  # It keeps running; suppresses the warning about a child that was not waited for.
    return running
