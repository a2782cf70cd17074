"""`kctl doctor`: what is wrong with a cluster, what to do first, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from kctl.admin.doctor.diagnosis import RULES, Ranked, diagnose
from kctl.admin.doctor.findings import Severity
from kctl.admin.doctor.snapshot import document_of, snapshot_of
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows_one
from kctl.commands.frame.query import QueryCommand
from kctl.errors import UsageError
from kctl.output.console import JSON_ONLY, Column, Format
from kctl.output.documents import read_json
from kctl.output.quantities import counted
from kctl.output.terminal_text import escape_cell, wrap
from kctl.system.user_files import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kctl.admin.doctor.snapshot import Snapshot, Unseen
    from kctl.output.console import Console

app = typer.Typer(add_completion=False)

PAGE_WIDTH = 100
_INDENT = 10


SeverityName = Literal["critical", "error", "warning", "note"]


class FindingRow(NamedTuple):
    """A cause, the most urgent first."""

    severity: str
    """critical, error, warning or note."""
    rule: str
    """The name that --silence takes."""
    subject: str
    cause: Annotated[str, Column(wraps=True)]
    evidence: Annotated[list[str], JSON_ONLY]
    look: Annotated[str, Column(wraps=True)]
    """The command that shows more."""
    repair: Annotated[str, Column(wraps=True)]
    """The command that repairs it, or what to do."""


class UnseenRow(NamedTuple):
    """A part of the cluster that could not be read, so that nothing is said about it."""

    what: str
    reason: str
    remedy: str


class DoctorItem(NamedTuple):
    """The diagnosis as a JSON object."""

    healthy: bool
    """Whether there is no finding of the severity of --fail-on, or a more severe one."""
    cluster_id: str | None
    taken_ms: int
    took_ms: int
    brokers: int
    topics: int
    partitions: int
    groups: int
    findings: list[FindingRow]
    unseen: list[UnseenRow]


@app.command(
    "doctor",
    cls=QueryCommand,
    epilog=examples(
        "kctl doctor",
        "kctl doctor --fail-on error --quiet",
        "kctl doctor --silence durability --silence unused-topics",
        "kctl doctor --snapshot > cluster.json",
        "kctl doctor --from cluster.json --format json",
    ),
)
@shows_one(DoctorItem)
def doctor(
    ctx: typer.Context,
    *,
    fail_on: Annotated[
        SeverityName,
        typer.Option(
            "--fail-on",
            help="Exit with status 3 if there is a finding of this severity or a more severe one.",
        ),
    ] = "warning",
    silence: Annotated[
        list[str] | None,
        typer.Option("--silence", metavar="RULE", help=f"Leave out this rule: {', '.join(RULES)}."),
    ] = None,
    snapshot: Annotated[
        bool,
        typer.Option("--snapshot", help="Print the state of the cluster as JSON, without a diagnosis, for --from."),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="FILE", help="Diagnose a snapshot that --snapshot printed; no cluster is asked."
        ),
    ] = None,
) -> ExitStatus:
    """Diagnose a cluster: one page, with what to do first at its top.

    Reads the controllers, brokers, disks, partitions, moves, groups, open transactions, certificates and versions, and
    shows causes instead of symptoms: a broker that is down is one finding, with all partitions that it affects.  Each
    finding has its evidence, the command that shows more, and the command or the action that repairs it.  Severities:
    critical (records are lost, or cannot be written or read), error (something stands still), warning (one more event
    makes it fail), note.

    The exit status is 3 if there are findings of the severity of --fail-on.  What could not be read is listed with the
    permission that is missing.
    """
    run: Invocation = ctx.obj
    minimum = Severity[fail_on.upper()]
    silenced = _rules(silence or [])
    if source is not None and snapshot:
        raise UsageError("--snapshot and --from exclude each other")
    seen = _read(source) if source is not None else _take(run)
    if snapshot:
        run.console.verbatim(_json(document_of(seen)))
        return ExitStatus.DONE
    findings = diagnose(seen, silenced)
    is_page = run.console.format is Format.TABLE
    options = run.cluster_options() if source is None else ""
    rows = [_row(ranked, "" if is_page else options) for ranked in findings]
    is_healthy = not any(ranked.finding.severity >= minimum for ranked in findings)
    unseen = [UnseenRow(part.what, part.reason, part.remedy) for part in seen.unseen]
    if run.console.is_machine_readable:
        run.console.show_one(
            DoctorItem(
                healthy=is_healthy,
                cluster_id=seen.cluster_id,
                taken_ms=seen.taken_ms,
                took_ms=seen.took_ms,
                brokers=sum(broker.is_listed for broker in seen.brokers),
                topics=len(seen.topics),
                partitions=sum(1 for _ in seen.partitions()),
                groups=len(seen.groups),
                findings=rows,
                unseen=unseen,
            )
        )
    elif is_page:
        run.console.text("\n".join(_page(run.console, seen, rows, unseen)))
        if options and rows:
            run.console.note(f"the commands need the options of this one:{options}")
    else:
        run.console.show(FindingRow, rows)
        for part in seen.unseen:
            run.console.warn(_not_seen(part))
    run.console.listed = len(rows)
    return ExitStatus.DONE if is_healthy else ExitStatus.UNMET


def _take(run: Invocation) -> Snapshot:
    from kctl.admin.doctor.reading import take_snapshot  # noqa: PLC0415 - not for --from

    settings = run.client_settings()
    tls = None
    if settings.security is not None and settings.security.uses_tls:
        from kctl.security.tls import TlsSettings  # noqa: PLC0415 - imports ssl

        tls = TlsSettings.of(run.client_properties())
    return run.on_cluster_concurrently(lambda client: take_snapshot(client, tls, timeout_ms=settings.timeout_ms))


def _read(path: str) -> Snapshot:
    text = read_text(path)
    try:
        return snapshot_of(read_json(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _json(document: dict[str, Any]) -> str:
    import json  # noqa: PLC0415 - only for --snapshot

    return json.dumps(document, separators=(",", ":")) + "\n"


def _rules(names: Sequence[str]) -> set[str]:
    unknown = [name for name in names if name not in RULES]
    if unknown:
        raise UsageError(f"--silence: there is no rule '{unknown[0]}'; the rules are {', '.join(RULES)}")
    return set(names)


def _row(finding: Ranked, options: str) -> FindingRow:
    details = finding.finding
    return FindingRow(
        details.severity.label,
        finding.rule,
        details.subject,
        details.cause,
        list(details.evidence),
        details.look + options,
        "; ".join(line + options for line in details.repair.split("; "))
        if details.repair.startswith("kctl ")
        else details.repair,
    )


def _page(console: Console, seen: Snapshot, rows: Sequence[FindingRow], unseen: Sequence[UnseenRow]) -> Iterator[str]:
    """Yield the diagnosis for people, as wide as the terminal, at most PAGE_WIDTH."""
    width = min(console.width or PAGE_WIDTH, PAGE_WIDTH)
    kind = {True: "KRaft", False: "ZooKeeper", None: "unknown kind"}[seen.is_kraft]
    listed, responding = sum(broker.is_listed for broker in seen.brokers), len(seen.responding)
    brokers = (
        counted(listed, "broker") if responding == listed else f"{responding} of {counted(listed, 'broker')} responding"
    )
    yield (
        f"cluster {escape_cell(seen.cluster_id or '-')} ({kind}): {brokers}, "
        f"{counted(len(seen.topics), 'topic')}, {counted(len(seen.groups), 'group')}; read in "
        f"{seen.took_ms / 1000:.1f} s"
    )
    for row in rows:
        yield ""
        yield from block(row.severity, row.cause, width, console)
        for text in row.evidence:
            yield from block("", text, width, console)
        yield from block("  look", row.look, width, console)
        if row.repair:
            yield from block("  repair", row.repair, width, console)
    if not rows:
        yield ""
        yield "nothing was found"
    if unseen:
        yield ""
        yield "not seen:"
        for part in unseen:
            remedy = f"; {part.remedy}" if part.remedy else ""
            yield from block("", f"{part.what}: {part.reason}{remedy}", width, console)


_COLORS = {"critical": "\x1b[1;31m", "error": "\x1b[31m", "warning": "\x1b[33m"}


def block(label: str, text: str, width: int, console: Console) -> Iterator[str]:
    """Yield a label and a text, whose lines are indented."""
    lines = wrap(escape_cell(text), max(20, width - _INDENT)) or [""]
    head = label.ljust(_INDENT)
    if console.color and console.width is not None and label in _COLORS:
        head = f"{_COLORS[label]}{label.upper()}\x1b[0m".ljust(_INDENT + len(_COLORS[label]) + 4)
    elif label in _COLORS or label == "note":
        head = label.upper().ljust(_INDENT)
    yield (head + lines[0]).rstrip()
    for line in lines[1:]:
        yield " " * _INDENT + line


def _not_seen(unseen: Unseen) -> str:
    return f"{unseen.what} could not be read: {unseen.reason}" + (f"; {unseen.remedy}" if unseen.remedy else "")
