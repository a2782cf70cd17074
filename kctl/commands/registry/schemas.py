"""`kctl registry`: list, describe, check, register and delete the schemas of a schema registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.client.registry.schema import NO_ID, Reference, Schema, SchemaError, SchemaNotFound
from kctl.commands.frame.command import ChangingCommand, ConfirmedCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.commands.reading.options import SchemaRegistry, registry_client
from kctl.commands.reading.searches import NamePattern
from kctl.commands.topics.options import DRY_RUN
from kctl.errors import UsageError
from kctl.output.console import Column, ErrorName, ErrorText
from kctl.output.quantities import INT32_MAX, counted, parse_integer
from kctl.system.user_files import read_regular

if TYPE_CHECKING:
    from kctl.client.registry.client import RegistryClient

verbs = typer.Typer(add_completion=False)


# Options and rows that several verbs of `kctl registry` share.


Level = Literal["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"]
SchemaType = Literal["avro", "json", "protobuf"]
_TYPES: dict[str, SchemaType] = {".avsc": "avro", ".json": "json", ".proto": "protobuf"}
_TRANSITIVE = "_TRANSITIVE"
_FOREVER = "deleted permanently"

Subject = Annotated[str, typer.Argument(help="Name of the subject, such as TOPIC-value.", metavar="SUBJECT")]
SchemaFile = Annotated[str, typer.Argument(help="File with the schema: .avsc, .json or .proto.", metavar="FILE")]
TypeOption = Annotated[
    SchemaType | None,
    typer.Option("--type", help="Type of the schema.  Default: by the end of the name: .avsc, .json or .proto."),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option("--reference", metavar="NAME=SUBJECT:VERSION", help="A schema that FILE uses under this name."),
]


class SubjectRow(NamedTuple):
    """A subject and its latest version."""

    subject: str
    versions: list[int]
    id: Annotated[int | None, "Of the latest version."]
    type: Annotated[str | None, "AVRO, JSON or PROTOBUF."]
    compatibility: Annotated[str | None, "The level that applies."]
    inherited: Annotated[bool | None, "Whether the level is that of the registry."]
    error: ErrorName = None
    message: ErrorText = None


class VersionRow(NamedTuple):
    """A version of a subject."""

    subject: str
    version: int
    id: int
    type: str
    references: Annotated[list[str], "NAME=SUBJECT:VERSION of each schema that it uses."]
    schema: Annotated[str, Column(wraps=True), "The text of the schema."]


class LevelRow(NamedTuple):
    """The compatibility level of a subject, or of the registry."""

    subject: Annotated[str | None, "Null for the registry."]
    compatibility: str
    inherited: Annotated[bool, "Whether the level is that of the registry."]
    status: Annotated[str | None, "changed, unchanged or would be changed; null without --set."]


class CheckRow(NamedTuple):
    """The comparison of a schema with a version of a subject."""

    subject: str
    version: int
    compatible: bool
    messages: Annotated[list[str], Column(wraps=True), "What the registry says about it."]


class RegisteredRow(NamedTuple):
    """A schema that is, or would be, a version of a subject."""

    subject: str
    version: int | None
    id: int | None
    status: Annotated[str, "registered, present (it was a version before) or would be registered."]


class DeletedRow(NamedTuple):
    """A version that was deleted."""

    subject: str
    version: int
    status: Annotated[str, "deleted, deleted permanently, or would be deleted (permanently)."]


def _client(run: Invocation, url: str | None) -> RegistryClient:
    return registry_client(run.client_properties(), url)


def _schema(path: str, type_name: SchemaType | None, references: list[str] | None) -> Schema:
    """Return the schema in a file.  Raises UsageError."""
    kind = type_name or next((kind for end, kind in _TYPES.items() if path.endswith(end)), None)
    if kind is None:
        raise UsageError(f"the type of the schema does not follow from the name of {path}: add --type")
    try:
        text = read_regular(path).decode()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None
    return Schema(NO_ID, kind.upper(), text, tuple(map(_reference, references or ())))


def _reference(text: str) -> Reference:
    name, _, place = text.rpartition("=")
    subject, _, version = place.rpartition(":")
    if not name or not subject:
        raise UsageError(f"--reference takes NAME=SUBJECT:VERSION, not '{text}'")
    return Reference(name, subject, parse_integer(version, "the version of --reference", low=1, high=INT32_MAX))


# `kctl registry list` and `describe`.


@verbs.command(
    "list",
    cls=QueryCommand,
    epilog=examples(
        "kctl registry list --schema-registry http://127.0.0.1:8081",
        "kctl registry list --subject-regex 'orders-.*' --format json",
    ),
)
@shows(SubjectRow)
def list_verb(
    ctx: typer.Context,
    *,
    subject_regex: Annotated[
        str | None,
        typer.Option(
            "--subject-regex", metavar="RE", help="Only subjects whose name matches this expression as a whole."
        ),
    ] = None,
    schema_registry: SchemaRegistry = None,
) -> ExitStatus:
    """List the subjects of a schema registry, with the id and type of their latest version.

    The registry is asked for each subject, so that this takes three requests per subject.
    """
    run: Invocation = ctx.obj
    pattern = None if subject_regex is None else NamePattern("--subject-regex", subject_regex)
    client = _client(run, schema_registry)
    subjects = client.subjects()
    default = client.compatibility(None).level
    rows = [_subject_row(client, name, default) for name in (subjects if pattern is None else pattern.select(subjects))]
    run.console.show(SubjectRow, rows)
    return run.status_of(rows)


def _subject_row(client: RegistryClient, subject: str, default: str) -> SubjectRow:
    try:
        numbers = client.version_numbers(subject)
        latest = client.version_of(subject, "latest").schema
        level = client.own_compatibility(subject)
    except SchemaError as error:  # It may have been deleted since it was listed.
        return SubjectRow(subject, [], None, None, None, None, "SCHEMA_REGISTRY", str(error))
    return SubjectRow(subject, numbers, latest.id, latest.type, level or default, level is None)


@verbs.command(
    "describe",
    cls=QueryCommand,
    epilog=examples(
        "kctl registry describe orders-value",
        "kctl registry describe orders-value --version latest --format json",
    ),
)
@shows(VersionRow)
def describe(
    ctx: typer.Context,
    subject: Subject,
    *,
    version: Annotated[
        str | None, typer.Option("--version", metavar="N", help="Only this version, or `latest`.  Default: all.")
    ] = None,
    schema_registry: SchemaRegistry = None,
) -> ExitStatus:
    """Describe the versions of a subject, with their schemas."""
    run: Invocation = ctx.obj
    client = _client(run, schema_registry)
    numbers = (
        [_version(version)] if version is not None else [str(number) for number in client.version_numbers(subject)]
    )
    rows = []
    for number in numbers:
        found = client.version_of(subject, number)
        schema = found.schema
        references = [f"{used.name}={used.subject}:{used.version}" for used in schema.references]
        rows.append(VersionRow(subject, found.version, schema.id, schema.type, references, schema.text))
    run.console.show(VersionRow, rows)
    return ExitStatus.DONE


def _version(text: str) -> str:
    return text if text == "latest" else str(parse_integer(text, "--version", low=1, high=INT32_MAX))


# `kctl registry compatibility` and `check`.


@verbs.command(
    "compatibility",
    cls=ConfirmedCommand,
    epilog=examples(
        "kctl registry compatibility orders-value",
        "kctl registry compatibility orders-value --set FULL_TRANSITIVE",
        "kctl registry compatibility --set BACKWARD --dry-run",
    ),
)
@shows(LevelRow)
def compatibility(
    ctx: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(help="Name of the subject.  Default: the level of the registry.", metavar="SUBJECT")
    ] = None,
    *,
    level: Annotated[Level | None, typer.Option("--set", metavar="LEVEL", help="Set this level.")] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
    schema_registry: SchemaRegistry = None,
) -> ExitStatus:
    """Show or set which changes of schemas a subject accepts.

    LEVEL is NONE, BACKWARD (consumers with the new schema read the data of the last one), FORWARD (the other way round)
    or FULL (both); with _TRANSITIVE, all versions are compared instead of the last one.
    """
    run: Invocation = ctx.obj
    if level is not None and not dry_run:
        run.authorize_change(ctx.command_path)
    client = _client(run, schema_registry)
    before = client.compatibility(subject)
    status = None
    if level is not None:
        is_changed = before.level != level or not before.is_own
        status = "unchanged" if not is_changed else "would be changed" if dry_run else "changed"
        if is_changed and not dry_run:
            client.set_compatibility(subject, level)
    shown = before.level if level is None else level
    run.console.show(LevelRow, [LevelRow(subject, shown, level is None and not before.is_own, status)])
    return ExitStatus.DONE


@verbs.command(
    "check",
    cls=QueryCommand,
    epilog=examples(
        "kctl registry check orders-value order.avsc",
        "kctl registry check orders-value order.proto --reference customer.proto=customer:1",
    ),
)
@shows(CheckRow)
def check_verb(
    ctx: typer.Context,
    subject: Subject,
    file: SchemaFile,
    *,
    type_: TypeOption = None,
    reference: ReferenceOption = None,
    schema_registry: SchemaRegistry = None,
) -> ExitStatus:
    """Check whether a schema can become a version of a subject.

    It is compared with the latest version, or with all if the compatibility level of the subject is transitive.  The
    exit status is 3 if it is not compatible.  A subject without versions accepts any schema.
    """
    run: Invocation = ctx.obj
    rows = _checked(_client(run, schema_registry), subject, _schema(file, type_, reference))
    if not rows:
        run.console.note(f"{subject} has no versions, so that any schema is accepted")
    run.console.show(CheckRow, rows)
    return ExitStatus.DONE if all(row.compatible for row in rows) else ExitStatus.UNMET


def _checked(client: RegistryClient, subject: str, schema: Schema) -> list[CheckRow]:
    """Compare the schema with the versions that count for the level of the subject."""
    try:
        numbers = client.version_numbers(subject)
    except SchemaNotFound:
        return []
    compared = numbers if client.compatibility(subject).level.endswith(_TRANSITIVE) else numbers[-1:]
    results = [client.compare(subject, number, schema) for number in compared]
    return [CheckRow(subject, result.version, result.is_compatible, list(result.messages)) for result in results]


# `kctl registry register` and `delete`.


@verbs.command(
    "register",
    cls=ChangingCommand,
    epilog=examples(
        "kctl registry register orders-value order.avsc --dry-run",
        "kctl registry register orders-value order.avsc",
    ),
)
@shows(RegisteredRow)
def register(
    ctx: typer.Context,
    subject: Subject,
    file: SchemaFile,
    *,
    type_: TypeOption = None,
    reference: ReferenceOption = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
    schema_registry: SchemaRegistry = None,
) -> ExitStatus:
    """Register a schema as the next version of a subject.

    A schema that is a version already stays that version.  With --dry-run, the exit status is 3 if the registry would
    refuse the schema because it is not compatible; 'kctl registry check' has the reasons.
    """
    run: Invocation = ctx.obj
    schema, client = _schema(file, type_, reference), _client(run, schema_registry)
    try:
        present = client.look_up(subject, schema)
    except SchemaNotFound:
        present = None
    if present is not None:
        row = RegisteredRow(subject, present.version, present.id, "present")
    elif dry_run:
        refused = [row for row in _checked(client, subject, schema) if not row.compatible]
        if refused:
            versions = ", ".join(str(row.version) for row in refused)
            run.console.warn(f"the schema is not compatible with {subject}, version {versions}")
            run.console.show(RegisteredRow, [])
            return ExitStatus.UNMET
        row = RegisteredRow(subject, None, None, "would be registered")
    else:
        schema_id = client.register(subject, schema)
        row = RegisteredRow(subject, client.look_up(subject, schema).version, schema_id, "registered")
    run.console.show(RegisteredRow, [row])
    return ExitStatus.DONE


@verbs.command(
    "delete",
    cls=ChangingCommand,
    epilog=examples(
        "kctl registry delete orders-value --version 2 --yes",
        "kctl registry delete orders-value --permanent --dry-run",
    ),
)
@shows(DeletedRow)
def delete(
    ctx: typer.Context,
    subject: Subject,
    *,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", help="Only this version.", min=1, max=INT32_MAX)
    ] = None,
    permanent: Annotated[
        bool,
        typer.Option("--permanent", help="Delete the schemas too, also of versions that were deleted before."),
    ] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
    schema_registry: SchemaRegistry = None,
) -> ExitStatus:
    """Delete a subject, or a version of it.

    The schemas of deleted versions are still found by their ids, so that records can be decoded, and registering the
    same schema again gives the same id.  With --permanent they are removed: records that were written with them can no
    longer be decoded.  Asks for confirmation on a terminal; elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    client = _client(run, schema_registry)
    numbers = client.version_numbers(subject, includes_deleted=permanent)
    if version is not None and version not in numbers:
        raise SchemaNotFound(f"the subject {subject} has no version {version}; it has {', '.join(map(str, numbers))}")
    status = _FOREVER if permanent else "deleted"
    if dry_run:
        chosen = numbers if version is None else [version]
        run.console.show(DeletedRow, [DeletedRow(subject, number, f"would be {status}") for number in chosen])
        return ExitStatus.DONE
    what = f"version {version}" if version is not None else counted(len(numbers), "version")
    undone = "  Records with these schemas can no longer be decoded." if permanent else ""
    run.consent(f"Delete {what} of the subject {subject}{' permanently' if permanent else ''}?{undone}")
    try:
        deleted = client.delete(subject, version)
    except SchemaNotFound:
        if not permanent:
            raise
        deleted = []  # It was deleted before, and only its schemas are left.
    if permanent:
        deleted = client.delete(subject, version, is_permanent=True)
    run.console.show(DeletedRow, [DeletedRow(subject, number, status) for number in sorted(deleted)])
    return ExitStatus.DONE
