"""`kctl tls`: check the TLS listener of a broker."""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.security.tls_check import check_tls
from kctl.client.settings import parse_servers
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.lazy_group import verb_group
from kctl.commands.frame.options.values import format_time
from kctl.commands.frame.output.shown import shows
from kctl.config.addresses import address_text, is_host
from kctl.errors import ClusterUnreachable, ConfigError, UsageError
from kctl.output.console import JSON_ONLY, Column, Format
from kctl.security.tls import TlsSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from kctl.admin.security.tls_check import CertificateReport, TlsReport


app = typer.Typer(
    cls=verb_group(__name__, ["check"]),
    help="Check the TLS listeners of brokers.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


# `kctl tls check`.


verbs = typer.Typer(add_completion=False)

DEFAULT_PORT = 9093
_MS_PER_DAY = 86_400_000


class CertificateItem(NamedTuple):
    """A certificate of the server."""

    subject: Annotated[str, Column(wraps=True)]
    issuer: Annotated[str, Column(wraps=True)]
    names: Annotated[list[str], Column(wraps=True, shown=", ".join)]
    valid_from: Annotated[str | None, JSON_ONLY]
    valid_until: str | None
    days_left: int
    key: str
    sha256: Annotated[str, JSON_ONLY]


class TlsItem(NamedTuple):
    """A TLS listener as a JSON object."""

    address: str
    trusted: bool
    version: str | None
    cipher: str | None
    versions: list[str]
    problems: list[str]
    certificates: list[CertificateItem]


class TlsOverview(NamedTuple):
    """A TLS listener above the table of its certificates."""

    address: str
    trusted: bool
    version: str | None
    cipher: str | None
    versions: str
    problems: str


class TlsRow(NamedTuple):
    """A TLS listener in the list of those of all brokers."""

    address: str
    trusted: bool
    version: str | None
    days_left: Annotated[int | None, "Until the first of its certificates expires."]
    problems: Annotated[str | None, Column(wraps=True)]


@verbs.command(
    "check",
    cls=ClusterCommand,
    epilog=examples(
        "kctl tls check broker1.example:9093 --command-config client.properties",
        "kctl tls check --bootstrap-server broker1.example:9093 --command-config client.properties",
        "kctl tls check 10.0.0.7:9093 --server-name broker1.example --expires-after 90",
        "kctl tls check broker1.example:9093 --format json",
    ),
)
@shows(TlsItem, instead=TlsItem)
def check(
    ctx: typer.Context,
    address: Annotated[
        str | None,
        typer.Argument(help="Address of a TLS listener.  Default: those of all brokers.", metavar="HOST:PORT"),
    ] = None,
    *,
    server_name: Annotated[
        str | None,
        typer.Option("--server-name", metavar="NAME", help="Name to expect in the certificate.  Default: the host."),
    ] = None,
    expires_after: Annotated[
        int,
        typer.Option(
            "--expires-after", metavar="DAYS", min=0, help="Report certificates that expire within this many days."
        ),
    ] = 30,
) -> ExitStatus:
    """Check TLS listeners: show certificates, protocol versions and cipher, and verify that a client trusts them.

    Without HOST:PORT, every broker of the cluster is checked, at the address that clients get from --bootstrap-server.
    The ssl.* properties of --command-config select the trusted certificates; the default is those of the system.  The
    exit status is 3 if the server is not trusted, accepts TLS 1.0 or 1.1, or has a certificate that expires too soon.
    """
    run: Invocation = ctx.obj
    addresses = None if address is None else parse_servers(address, default_port=DEFAULT_PORT)
    if addresses is not None and len(addresses) != 1:
        raise UsageError(f"'{address}' is more than one address; give one, or none for all brokers")
    if server_name is not None and not is_host(server_name):
        raise UsageError(f"--server-name takes the name of a host or an IP address, not '{server_name}'")
    end_s = monotonic() + run.client_settings().timeout_ms / 1000

    def checked(host: str, port: int) -> TlsItem:
        try:
            settings = TlsSettings.of(run.client_properties())
            report = check_tls(host, port, settings, server_name=server_name, left_s=lambda: end_s - monotonic())
        except ConfigError as error:
            raise UsageError(f"--command-config: {error}") from None
        return _item(report, now_ms=round(time() * 1000), days=expires_after)

    if addresses is None:
        return _check_brokers(run, checked)
    item = checked(*addresses[0])
    if run.console.is_machine_readable:
        run.console.show_one(item)
    elif run.console.format is Format.CSV:
        run.console.show(CertificateItem, item.certificates)
    else:
        versions, problems = ", ".join(item.versions), ", ".join(item.problems)
        run.console.show_one(TlsOverview(item.address, item.trusted, item.version, item.cipher, versions, problems))
        run.console.text("")
        run.console.show(CertificateItem, item.certificates)
    return ExitStatus.UNMET if item.problems else ExitStatus.DONE


def _check_brokers(run: Invocation, checked: Callable[[str, int], TlsItem]) -> ExitStatus:
    """Check each broker; one that cannot be reached is a problem among those of the others."""
    items = []
    brokers = run.on_cluster(lambda client: client.metadata([])).brokers
    for _, broker in sorted(brokers.items()):
        try:
            items.append(checked(broker.host, broker.port))
        except ClusterUnreachable as error:
            items.append(TlsItem(address_text(broker.host, broker.port), False, None, None, [], [str(error)], []))
    rows = [
        TlsRow(
            item.address,
            item.trusted,
            item.version,
            min((entry.days_left for entry in item.certificates), default=None),
            ", ".join(item.problems) or None,
        )
        for item in items
    ]
    run.console.show(TlsItem if run.console.is_machine_readable else TlsRow, items, rows=rows)
    return ExitStatus.UNMET if any(item.problems for item in items) else ExitStatus.DONE


def _item(report: TlsReport, *, now_ms: int, days: int) -> TlsItem:
    certificates = [_certificate_item(entry, now_ms) for entry in report.certificates]
    problems = [] if report.problem is None else [f"not trusted: {report.problem}"]
    problems += [f"accepts {version}" for version in report.old_versions]
    problems += [
        f"{entry.subject} expires in {entry.days_left} days" for entry in certificates if entry.days_left < days
    ]
    return TlsItem(
        address=address_text(report.host, report.port),
        trusted=report.problem is None,
        version=report.version,
        cipher=report.cipher,
        versions=list(report.versions),
        problems=problems,
        certificates=certificates,
    )


def _certificate_item(entry: CertificateReport, now_ms: int) -> CertificateItem:
    return CertificateItem(
        subject=entry.subject,
        issuer=entry.issuer,
        names=list(entry.names),
        valid_from=format_time(_ms(entry.valid_from)),
        valid_until=format_time(_ms(entry.valid_until)),
        days_left=(_ms(entry.valid_until) - now_ms) // _MS_PER_DAY,
        key=entry.key,
        sha256=entry.fingerprint,
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
