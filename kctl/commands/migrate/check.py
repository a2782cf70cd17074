"""`kctl migrate check`: what stands in the way of a migration from ZooKeeper to KRaft, and its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.commands.broker.zookeeper import TlsConfigFile, run_on_zookeeper
from kctl.commands.doctor import PAGE_WIDTH, block
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows_one
from kctl.commands.frame.query import QueryCommand
from kctl.commands.users import ensemble_of
from kctl.config.addresses import address_text, parse_addresses
from kctl.errors import UsageError
from kctl.migration.check.directory_reading import read_directories
from kctl.migration.check.judging import Report, judge
from kctl.migration.check.kinds import KINDS, Way
from kctl.migration.check.reading import read_facts
from kctl.migration.check.steps import Step, steps_of
from kctl.migration.source.cluster import StoredCluster, parse_cluster
from kctl.migration.source.reading import read_znodes
from kctl.output.console import JSON_ONLY, Column, Format
from kctl.output.quantities import INT32_MAX, counted, parse_integer
from kctl.output.terminal_text import escape_cell
from kctl.security.tls import TlsSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kctl.admin.doctor.findings import Finding
    from kctl.migration.check.facts import ClusterFacts
    from kctl.output.console import Console

verbs = typer.Typer(add_completion=False)

CONTROLLER_PORT = 9093
EXPORTER_PORT = 9404
"""Of Prometheus's JMX exporter."""
WayName = Literal["bridge", "offline"]


class ProblemRow(NamedTuple):
    """Something that stands in the way of a migration, or is to be known; what blocks comes first."""

    severity: str
    """critical, error, warning or note."""
    kind: str
    """A kind of docs/migrate-check.md, which --silence takes."""
    check: str
    """The check that has found it."""
    blocks: list[str]
    """Ways that cannot be taken before it is repaired: bridge, offline."""
    subject: str
    cause: Annotated[str, Column(wraps=True)]
    evidence: Annotated[list[str], JSON_ONLY]
    look: Annotated[str, Column(wraps=True)]
    """The command that shows more."""
    remedy: Annotated[str, Column(wraps=True)]


class NotCheckedRow(NamedTuple):
    """A check that could not be made, or only in part."""

    check: str
    reason: str
    remedy: str


class FileChangeRow(NamedTuple):
    """The lines of one node's properties file that a step adds, changes or removes."""

    node: str
    set: dict[str, str]
    remove: list[str]


class StepRow(NamedTuple):
    """A step of a way."""

    title: str
    actions: list[str]
    files: list[FileChangeRow]
    way_back: str


class CheckItem(NamedTuple):
    """The report as a JSON object."""

    cluster_id: str | None
    target: str
    blocked: list[str]
    """The ways that something blocks: bridge, offline."""
    problems: list[ProblemRow]
    not_checked: list[NotCheckedRow]
    steps: list[StepRow]
    """The steps of --path."""


@verbs.command(
    "check",
    cls=QueryCommand,
    epilog=examples(
        "kctl migrate check --zookeeper zk1:2181",
        "kctl migrate check --zookeeper zk1:2181 --log-dirs /var/lib/kafka --target 4.2",
        "kctl migrate check --zookeeper zk1:2181 --path bridge --controllers c1:9093,c2:9093,c3:9093",
        "kctl migrate check --endpoint 0=kafka-0:7071 --path offline --format json",
    ),
)
@shows_one(CheckItem)
def check(
    ctx: typer.Context,
    *,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT[,...][/CHROOT]",
            help="Ensemble of the cluster, with the chroot of zookeeper.connect.",
        ),
    ] = None,
    zk_tls_config_file: TlsConfigFile = None,
    log_dirs: Annotated[
        list[str] | None,
        typer.Option("--log-dirs", metavar="DIR[,...]", help="Log directories on this machine."),
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="BROKER=HOST:PORT",
            help="Endpoint for metrics of a broker, such as that of Prometheus's JMX exporter.",
        ),
    ] = None,
    target: Annotated[
        Literal["4.0", "4.1", "4.2", "4.3", "4.4"],
        typer.Option("--target", help="Version of Apache Kafka that the cluster is to run."),
    ] = "4.3",
    path: Annotated[
        WayName | None,
        typer.Option(
            "--path",
            help="Check one way, and list its steps: Apache's over release 3.9, or 'kctl migrate convert'.",
        ),
    ] = None,
    controllers: Annotated[
        str | None,
        typer.Option("--controllers", metavar="HOST:PORT[,...]", help="The nodes that become controllers, for --path."),
    ] = None,
    silence: Annotated[
        list[str] | None,
        typer.Option("--silence", metavar="KIND", help="Leave out problems of this kind."),
    ] = None,
) -> ExitStatus:
    """Check whether a cluster can be migrated from ZooKeeper to KRaft, while it runs; changes nothing.

    Reads brokers of 0.11 to 3.9, and of kctl.  With --zookeeper it reads the znodes too, and with --log-dirs, on the
    host of a broker, its directories.  Each problem has its evidence and its remedy, and says which way it blocks:
    Apache's own migration ("bridge") or 'kctl migrate convert' ("offline").  What could not be checked is listed with
    the reason.

    The exit status is 3 if something blocks the way of --path, or without it, any of the two.
    """
    run: Invocation = ctx.obj
    silenced = _kinds(silence or [])
    places = (
        [address_text(*address) for address in parse_addresses(controllers, default_port=CONTROLLER_PORT)]
        if controllers
        else []
    )
    way = None if path is None else Way(path)
    if places and way is None:
        raise UsageError("--controllers is for the steps of a way: add --path bridge or --path offline")
    endpoints = dict(map(_endpoint, endpoint or []))
    ensemble = ensemble_of(zookeeper, zk_tls_config_file)
    files = read_directories(name for names in log_dirs or [] for name in names.split(",") if name)
    settings = run.client_settings()
    tls = None
    if settings.security is not None and settings.security.uses_tls:
        tls = TlsSettings.of(run.client_properties())
    stored: StoredCluster | None = None
    if ensemble is not None:
        stored = parse_cluster(
            run_on_zookeeper(
                run, ensemble.connect, "/", lambda session, _: read_znodes(session), tls_config=ensemble.tls_config
            )
        )
    facts = run.on_cluster_concurrently(
        lambda client: read_facts(
            client,
            tls,
            target=target,
            timeout_ms=settings.timeout_ms,
            stored=stored,
            files=files,
            endpoints=endpoints,
        )
    )
    if stored is not None and stored.cluster_id is not None and stored.cluster_id != facts.snapshot.cluster_id:
        raise UsageError(
            f"--zookeeper {zookeeper}: its cluster id is {stored.cluster_id}, that of the brokers "
            f"{facts.snapshot.cluster_id}; name the ensemble and the chroot of zookeeper.connect"
        )
    report = judge(facts, silenced)
    steps = [] if way is None or facts.snapshot.is_kraft else steps_of(way, facts, places, zookeeper)
    _show(run, facts, report, way, steps)
    return ExitStatus.UNMET if report.blocking(way) else ExitStatus.DONE


def _kinds(names: Sequence[str]) -> set[str]:
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise UsageError(f"--silence: there is no kind '{unknown[0]}'; the kinds are {', '.join(KINDS)}")
    return set(names)


def _endpoint(text: str) -> tuple[int, tuple[str, int]]:
    broker, separator, address = text.partition("=")
    if not separator:
        raise UsageError(f"--endpoint {text}: write BROKER=HOST:PORT")
    addresses = parse_addresses(address, default_port=EXPORTER_PORT)
    if len(addresses) != 1:
        raise UsageError(f"--endpoint {text}: write BROKER=HOST:PORT")
    return parse_integer(broker, "--endpoint: the broker", low=0, high=INT32_MAX), addresses[0]


def _show(run: Invocation, facts: ClusterFacts, report: Report, way: Way | None, steps: Sequence[Step]) -> None:
    is_page = run.console.format is Format.TABLE
    options = run.cluster_options()
    rows = [
        _row(found.finding, found.kind, sorted(found.blocks), "" if is_page else options) for found in report.problems
    ]
    not_checked = [NotCheckedRow(*skipped) for skipped in report.not_checked]
    run.console.listed = len(rows)
    if run.console.is_machine_readable:
        run.console.show_one(
            CheckItem(
                cluster_id=facts.snapshot.cluster_id,
                target=facts.target,
                blocked=[name.value for name in Way if report.blocking(name)],
                problems=rows,
                not_checked=not_checked,
                steps=[
                    StepRow(
                        step.title,
                        list(step.actions),
                        [FileChangeRow(change.node, dict(change.set), list(change.remove)) for change in step.files],
                        step.way_back,
                    )
                    for step in steps
                ],
            )
        )
    elif is_page:
        run.console.text("\n".join(_page(run.console, facts, report, rows, not_checked, way, steps)))
        if options and rows:
            run.console.note(f"the commands need the options of this one:{options}")
    else:
        run.console.show(ProblemRow, rows)
        for skipped in not_checked:
            run.console.warn(f"not checked: {skipped.check}: {skipped.reason}")
        if steps:
            run.console.warn("the steps of --path are shown with --format table, json and yaml")


def _row(finding: Finding, kind: str, blocks: Sequence[Way], options: str) -> ProblemRow:
    return ProblemRow(
        finding.severity.label,
        kind,
        KINDS[kind].check,
        [way.value for way in blocks],
        finding.subject,
        finding.cause,
        list(finding.evidence),
        finding.look + (options if finding.look.startswith("kctl ") else ""),
        finding.repair,
    )


def _page(
    console: Console,
    facts: ClusterFacts,
    report: Report,
    rows: Sequence[ProblemRow],
    not_checked: Sequence[NotCheckedRow],
    way: Way | None,
    steps: Sequence[Step],
) -> Iterator[str]:
    """Yield the report for people, as wide as the terminal, at most PAGE_WIDTH."""
    width = min(console.width or PAGE_WIDTH, PAGE_WIDTH)
    snapshot = facts.snapshot
    brokers = sum(broker.is_listed for broker in snapshot.brokers)
    yield (
        f"cluster {escape_cell(snapshot.cluster_id or '-')}: {counted(brokers, 'broker')}, "
        f"{counted(len(snapshot.topics), 'topic')}; to Apache Kafka {facts.target}"
    )
    for judged in Way if way is None else (way,):
        count = len(report.blocking(judged))
        blocked = "1 problem blocks it" if count == 1 else f"{counted(count, 'problem')} block it"
        yield f"  {judged.value}: {blocked if count else 'nothing was found that blocks it'}"
    for row in rows:
        yield ""
        blocks = f"  [blocks {' and '.join(row.blocks)}]" if row.blocks else ""
        yield from block(row.severity, row.cause + blocks, width, console)
        for text in row.evidence:
            yield from block("", text, width, console)
        yield from block("  look", row.look, width, console)
        yield from block("  remedy", row.remedy, width, console)
    if not_checked:
        yield ""
        yield "not checked:"
        for skipped in not_checked:
            remedy = f"; {skipped.remedy}" if skipped.remedy else ""
            yield from block("", f"{skipped.check}: {skipped.reason}{remedy}", width, console)
    for number, step in enumerate(steps, 1):
        yield ""
        yield escape_cell(f"{number}. {step.title}")
        for action in step.actions:
            yield from block("", action, width, console)
        for change in step.files:
            yield f"   {change.node}:"
            for name in change.remove:
                yield escape_cell(f"     remove {name}")
            for name, value in change.set.items():
                yield escape_cell(f"     {name}={value}")
        if step.way_back:
            yield from block("  back", step.way_back, width, console)
