"""`kctl users`: list, create, alter and delete SCRAM users."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from kctl.admin.security import users
from kctl.admin.security.users import NewPassword
from kctl.client.outcome import Outcome
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.lazy_group import verb_group
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.commands.topics.options import DRY_RUN
from kctl.errors import ErrorCode, UsageError
from kctl.output.console import ErrorName, ErrorText
from kctl.security.scram import ITERATIONS_MIN, Mechanism
from kctl.system.user_files import read_input

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kctl.admin.security.users import DescribedUser
    from kctl.client.cluster import ClusterClient
    from kctl.zookeeper.operations import ZooKeeper


app = typer.Typer(
    cls=verb_group(__name__, ["list", "create", "alter", "delete"]),
    help="List, create, alter and delete SCRAM users.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


# Options of `kctl users`, and reading the password.


T = TypeVar("T")

PASSWORD_VARIABLE = "KCTL_USER_PASSWORD"  # noqa: S105 - the name of a variable
PASSWORD_CHARACTERS_MAX = 1_000
ITERATIONS_MAX = 16_384
DEFAULT_MECHANISM = Mechanism.SCRAM_SHA_512
MECHANISM_NAMES = ", ".join(mechanism.config_key for mechanism in Mechanism)

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
    """Return the mechanisms in the option, or the default.  Raises UsageError."""
    chosen: dict[Mechanism, None] = {}
    for name in names or [DEFAULT_MECHANISM.config_key]:
        mechanism = Mechanism.named(name.upper())
        if mechanism is None:
            raise UsageError(f"--mechanism {name} is not one of {MECHANISM_NAMES}")
        chosen[mechanism] = None
    return tuple(chosen)


def read_password(path: str | None, user: str) -> str:
    """Return the password from the file, else from the environment, else from the terminal.

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
    """Return whether the text is Unicode: Python keeps other bytes of the environment as halves of surrogate pairs."""
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
    """Return the ensemble of the options; None without --zookeeper.  Raises UsageError."""
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
    """Run `on_zookeeper` if an ensemble is given, else `on_cluster`."""
    if ensemble is None:
        return run.on_cluster(on_cluster)
    from kctl.commands.broker.zookeeper import run_on_zookeeper  # noqa: PLC0415 - imports kazoo

    with nullcontext() if run.changes is None else run.changes.sending("ZooKeeper operation"):
        return run_on_zookeeper(
            run, ensemble.connect, "/", lambda session, _: on_zookeeper(session), tls_config=ensemble.tls_config
        )


# Rows of `kctl users`.


class UserRow(NamedTuple):
    """A credential of a user, or a user that could not be described."""

    user: str
    mechanism: str | None
    iterations: int | None
    error: ErrorName = None
    message: ErrorText = None


class UserChangeRow(NamedTuple):
    """A user that is created, altered or deleted."""

    user: str
    mechanisms: list[str]
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


def user_rows(described: DescribedUser) -> list[UserRow]:
    """Return a row for each credential."""
    outcome = described.outcome
    if not outcome.is_done:
        return [UserRow(outcome.name, None, None, **outcome_error(outcome))]
    return [UserRow(outcome.name, mechanism.config_key, count) for mechanism, count in described.iterations.items()]


def user_change_rows(outcomes: Mapping[Mechanism, Outcome], status: str) -> list[UserChangeRow]:
    """Return a row for all mechanisms with the same outcome."""
    mechanisms: dict[Outcome, list[Mechanism]] = {}
    for mechanism, outcome in outcomes.items():
        mechanisms.setdefault(outcome, []).append(mechanism)
    return [user_change_row(outcome, of_user, status) for outcome, of_user in mechanisms.items()]


def user_change_row(outcome: Outcome, mechanisms: Sequence[Mechanism], status: str) -> UserChangeRow:
    """Return the outcome of a change; `status` is shown if it succeeded."""
    return UserChangeRow(
        user=outcome.name,
        mechanisms=[mechanism.config_key for mechanism in mechanisms],
        status=status if outcome.is_done else None,
        **outcome_error(outcome),
    )


# `kctl users list`.


verbs = typer.Typer(add_completion=False)


@verbs.command(
    "list",
    cls=QueryCommand,
    epilog=examples(
        "kctl users list", "kctl users list alice bob --format json", "kctl users list --zookeeper zk1:2181"
    ),
)
@shows(UserRow)
def list_users(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Users to list.  Default: all.", metavar="USER")] = None,
    *,
    zookeeper: Annotated[str | None, ZOOKEEPER] = None,
    zk_tls_config_file: Annotated[str | None, ZK_TLS_CONFIG_FILE] = None,
) -> ExitStatus:
    """List users with SCRAM credentials.

    Requires Kafka 2.7 or later; use --zookeeper for earlier versions.
    """
    run: Invocation = ctx.obj
    ensemble = ensemble_of(zookeeper, zk_tls_config_file)
    described = on_users(
        run,
        ensemble,
        on_cluster=lambda client: users.describe_users(client, set(names or ())),
        on_zookeeper=lambda session: users.describe_users_in_zookeeper(session, set(names or ())),
    )
    rows = [row for user in described for row in user_rows(user)]
    run.console.show(UserRow, rows)
    return run.status_of(rows)


# Sets the password of an existing or new user.


def set_user_password(
    run: Invocation,
    name: str,
    *,
    mechanism_names: Sequence[str] | None,
    iterations: int,
    password_file: str | None,
    ensemble: Ensemble | None,
    is_new: bool,
    dry_run: bool,
) -> ExitStatus:
    """Check whether the user exists, set the password and show the outcome."""
    mechanisms = mechanisms_of(mechanism_names)
    password = None if password_file is None else read_password(password_file, name)
    (described,) = on_users(
        run,
        ensemble,
        on_cluster=lambda client: users.describe_users(client, [name]),
        on_zookeeper=lambda session: users.describe_users_in_zookeeper(session, [name]),
    )
    outcome = described.outcome
    if outcome.error is ErrorCode.RESOURCE_NOT_FOUND:
        outcome = Outcome(name) if is_new else outcome
    elif outcome.is_done and is_new:
        known = ", ".join(mechanism.config_key for mechanism in described.iterations)
        outcome = Outcome(name, ErrorCode.DUPLICATE_RESOURCE, f"the user exists, with {known}; use kctl users alter")
    if outcome.is_done and not mechanism_names and not is_new:
        mechanisms = tuple(described.iterations)
    done = "created" if is_new else "altered"
    if outcome.is_done and not dry_run:
        new = NewPassword(password or read_password(None, name), mechanisms, iterations)
        run.restart_timeout()
        outcomes = on_users(
            run,
            ensemble,
            on_cluster=lambda client: users.set_password(client, name, new),
            on_zookeeper=lambda session: users.set_password_in_zookeeper(session, name, new),
        )
        rows = user_change_rows(outcomes, done)
    else:
        rows = [user_change_row(outcome, mechanisms, f"would be {done}")]
    run.console.show(UserChangeRow, rows)
    return run.status_of(rows)


# `kctl users create`.


@verbs.command(
    "create",
    cls=ChangingCommand,
    epilog=examples(
        "kctl users create alice",
        "kctl users create alice --mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512 --password-file alice.password",
        "kctl users create admin --zookeeper zk1:2181 --password-file admin.password",
    ),
)
@shows(UserChangeRow)
def create(
    ctx: typer.Context,
    name: Annotated[str, NAME],
    *,
    mechanism: Annotated[list[str] | None, MECHANISMS] = None,
    iterations: Annotated[int, ITERATIONS] = ITERATIONS_MIN,
    password_file: Annotated[str | None, PASSWORD_FILE] = None,
    zookeeper: Annotated[str | None, ZOOKEEPER] = None,
    zk_tls_config_file: Annotated[str | None, ZK_TLS_CONFIG_FILE] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Create a user with a password.

    Fails if the user already has SCRAM credentials.  The password cannot be given as an argument, because all users of
    the machine can read the arguments of a process.
    """
    return set_user_password(
        ctx.obj,
        name,
        mechanism_names=mechanism,
        iterations=iterations,
        password_file=password_file,
        ensemble=ensemble_of(zookeeper, zk_tls_config_file),
        is_new=True,
        dry_run=dry_run,
    )


# `kctl users alter`.


@verbs.command(
    "alter",
    cls=ChangingCommand,
    epilog=examples(
        "kctl users alter alice",
        "kctl users alter alice --mechanism SCRAM-SHA-512 --iterations 8192 --password-file alice.password",
    ),
)
@shows(UserChangeRow)
def alter(
    ctx: typer.Context,
    name: Annotated[str, NAME],
    *,
    mechanism: Annotated[list[str] | None, MECHANISMS_OF_USER] = None,
    iterations: Annotated[int, ITERATIONS] = ITERATIONS_MIN,
    password_file: Annotated[str | None, PASSWORD_FILE] = None,
    zookeeper: Annotated[str | None, ZOOKEEPER] = None,
    zk_tls_config_file: Annotated[str | None, ZK_TLS_CONFIG_FILE] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Change the password of a user.

    Authenticated connections stay open; with connections.max.reauth.ms, the broker requires the new password when that
    time has passed.
    """
    return set_user_password(
        ctx.obj,
        name,
        mechanism_names=mechanism,
        iterations=iterations,
        password_file=password_file,
        ensemble=ensemble_of(zookeeper, zk_tls_config_file),
        is_new=False,
        dry_run=dry_run,
    )


# `kctl users delete`.


@verbs.command(
    "delete",
    cls=ChangingCommand,
    epilog=examples("kctl users delete alice --yes", "kctl users delete alice --mechanism SCRAM-SHA-256 --yes"),
)
@shows(UserChangeRow)
def delete(
    ctx: typer.Context,
    name: Annotated[str, NAME],
    *,
    mechanism: Annotated[
        list[str] | None,
        typer.Option("--mechanism", metavar="NAME", help="Delete only this credential.  Default: all."),
    ] = None,
    zookeeper: Annotated[str | None, ZOOKEEPER] = None,
    zk_tls_config_file: Annotated[str | None, ZK_TLS_CONFIG_FILE] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Delete the SCRAM credentials of a user.

    Quotas and ACLs of the user are kept, and authenticated connections stay open.  Asks for confirmation on a terminal;
    elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    ensemble = ensemble_of(zookeeper, zk_tls_config_file)
    chosen: tuple[Mechanism, ...] = mechanisms_of(mechanism) if mechanism else ()
    (described,) = on_users(
        run,
        ensemble,
        on_cluster=lambda client: users.describe_users(client, [name]),
        on_zookeeper=lambda session: users.describe_users_in_zookeeper(session, [name]),
    )
    outcome, chosen = described.outcome, chosen or tuple(described.iterations)
    missing = [candidate.config_key for candidate in chosen if candidate not in described.iterations]
    if outcome.is_done and missing:
        text = f"the user has no credential of {', '.join(missing)}; nothing is deleted"
        outcome = Outcome(name, ErrorCode.RESOURCE_NOT_FOUND, text)
    if outcome.is_done and not dry_run:
        run.consent(f"Delete {', '.join(candidate.config_key for candidate in chosen)} of {name}?")
        outcomes = on_users(
            run,
            ensemble,
            on_cluster=lambda client: users.delete_credentials(client, name, chosen),
            on_zookeeper=lambda session: users.delete_credentials_in_zookeeper(session, name, chosen),
        )
        rows = user_change_rows(outcomes, "deleted")
    else:
        rows = [user_change_row(outcome, chosen, "would be deleted")]
    run.console.show(UserChangeRow, rows)
    return run.status_of(rows)
