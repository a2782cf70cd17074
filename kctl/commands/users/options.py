"""Options of `kctl users`, and reading the password."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import typer

from kctl.commands.exit_status import Refused
from kctl.commands.invocation import Invocation
from kctl.errors import UsageError
from kctl.input_files import read_input
from kctl.security.scram_credentials import Mechanism
from kctl.security.scram_messages import ITERATIONS_MIN

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.zookeeper.operations import ZooKeeper

T = TypeVar("T")

PASSWORD_VARIABLE = "KCTL_USER_PASSWORD"  # noqa: S105 - the name of a variable
PASSWORD_CHARACTERS_MAX = 1_000
ITERATIONS_MAX = 16_384
DEFAULT_MECHANISM = Mechanism.SCRAM_SHA_512
MECHANISM_NAMES = ", ".join(each.config_key for each in Mechanism)

NAME = typer.Argument(help="Name of the user.", metavar="USER")
MECHANISMS = typer.Option(
    "--mechanism", metavar="NAME", help=f"{MECHANISM_NAMES}.  Default: {DEFAULT_MECHANISM.config_key}."
)
MECHANISMS_OF_USER = typer.Option(
    "--mechanism", metavar="NAME", help=f"{MECHANISM_NAMES}.  Default: all mechanisms that the user has."
)
ITERATIONS = typer.Option(
    "--iterations",
    metavar="N",
    help="Iterations of the hash.  More iterations slow down attacks on stolen credentials, and each login.",
    min=ITERATIONS_MIN,
    max=ITERATIONS_MAX,
)
PASSWORD_FILE = typer.Option(
    "--password-file",
    metavar="FILE",
    help=f"File whose first line is the password.  Default: ${PASSWORD_VARIABLE}, else a prompt.",
)
ZOOKEEPER = typer.Option(
    "--zookeeper",
    metavar="HOST:PORT[,...][/CHROOT]",
    help="Use this ZooKeeper ensemble directly; no broker needs to run.",
)

ZK_TLS_CONFIG_FILE = typer.Option(
    "--zk-tls-config-file",
    metavar="FILE",
    help="Properties file with zookeeper.ssl... settings for --zookeeper.",
)


def mechanisms_of(names: Sequence[str] | None) -> tuple[Mechanism, ...]:
    """The mechanisms in the option, or the default.  Raises UsageError."""
    chosen: dict[Mechanism, None] = {}
    for name in names or [DEFAULT_MECHANISM.config_key]:
        mechanism = Mechanism.named(name.upper())
        if mechanism is None:
            raise UsageError(f"--mechanism {name} is not one of {MECHANISM_NAMES}")
        chosen[mechanism] = None
    return tuple(chosen)


def read_password(path: str | None, user: str) -> str:
    """The password from the file, else from the environment, else from the terminal.

    It is never read from the command line, which all users of the machine can read.  Raises UsageError, and Refused
    without a terminal and at the end of its input (Ctrl-D).
    """
    if path is not None:
        password = _of_file(path)
    elif PASSWORD_VARIABLE in os.environ:
        password = os.environ[PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        password = _of_terminal(user)
    else:
        raise Refused(f"no terminal to read the password from: use --password-file or ${PASSWORD_VARIABLE}")
    if not password:
        raise UsageError("the password must not be empty")
    if not _is_unicode(password):
        raise UsageError("the password is not valid UTF-8")
    if len(password) > PASSWORD_CHARACTERS_MAX:
        raise UsageError(f"the password has more than {PASSWORD_CHARACTERS_MAX} characters")
    return password


def _of_terminal(user: str) -> str:
    try:
        password = getpass.getpass(f"Password of {user}: ")
        if getpass.getpass("Again: ") != password:
            raise UsageError("the two passwords differ")
    except EOFError:
        raise Refused("cancelled: no password was given") from None
    except UnicodeDecodeError:
        raise UsageError("the password is not valid UTF-8") from None
    return password


def _is_unicode(text: str) -> bool:
    """False for bytes of the environment that are not UTF-8, which Python keeps as halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _of_file(path: str) -> str:
    try:
        lines = read_input(path).decode().splitlines()
    except OSError as error:
        raise UsageError(f"--password-file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--password-file {path} is not UTF-8") from None
    return lines[0] if lines else ""


class Ensemble(NamedTuple):
    """The ZooKeeper ensemble that --zookeeper names."""

    connect: str
    tls_config: str | None
    """Properties file with the settings for TLS."""


def ensemble_of(zookeeper: str | None, zk_tls_config_file: str | None) -> Ensemble | None:
    """The ensemble of the options; None without --zookeeper.  Raises UsageError."""
    if zookeeper is not None:
        return Ensemble(zookeeper, zk_tls_config_file)
    if zk_tls_config_file is not None:
        raise UsageError("--zk-tls-config-file requires --zookeeper")
    return None


def on_users(
    run: Invocation,
    ensemble: Ensemble | None,
    *,
    on_cluster: Callable[[ClusterClient], Awaitable[T]],
    on_zookeeper: Callable[[ZooKeeper], Awaitable[T]],
) -> T:
    """Runs `on_zookeeper` if an ensemble is given, else `on_cluster`."""
    if ensemble is None:
        return run.on_cluster(on_cluster)
    from kctl.commands.zookeeper.connection import run_on_zookeeper  # noqa: PLC0415 - imports kazoo

    with nullcontext() if run.changes is None else run.changes.sending("ZooKeeper operation"):
        return run_on_zookeeper(
            run, ensemble.connect, "/", lambda session, _: on_zookeeper(session), tls_config=ensemble.tls_config
        )
