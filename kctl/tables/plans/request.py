"""What an export is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from kctl.admin.topics.offsets import START
from kctl.client.registry.schema import RegistrySettings
from kctl.client.settings import ClientSettings
from kctl.errors import UsageError
from kctl.tables.engines.engine import EngineSettings
from kctl.tables.exec.schema.column_types import Format
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.cluster_view import TopicSelection
from kctl.tables.plans.decodings import DecodingOptions
from kctl.tables.plans.plan import FileOptions, OnCorruptBatch, OnDataLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Options of an export.  Raises UsageError for those that exclude each other."""

    target: str
    """A folder or a URL, see kctl.tables.exec.targets.target."""
    selection: TopicSelection
    client: ClientSettings
    options: FileOptions
    target_file_bytes: int
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    on_corrupt_batch: OnCorruptBatch = OnCorruptBatch.FAIL
    adopts: bool = False
    """Whether to adopt data files that no commit names."""
    engine: EngineSettings
    table: TableOptions = field(default_factory=TableOptions)
    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    registry: RegistrySettings | None = None
    misfits_max: int | None = None
    """How many values of a batch may have another type than their column; None: any number."""
    dead_letter_topic: str = ""
    """The topic that gets the dead letters too; empty: none."""

    def __post_init__(self) -> None:
        if self.dead_letter_topic and not self.decoding.keeps_bad:
            raise UsageError("--dead-letter-topic is an option of --on-bad-record dead-letter")
        if self.dead_letter_topic in self.selection.topics:
            raise UsageError(f"--dead-letter-topic: {self.dead_letter_topic} is one of the exported topics")
        if self.table.upsert:
            self._check_upsert()
        if self.table.keeps_raw and not any(
            field_options.format not in {Format.BINARY, Format.STRING} for field_options in self.decoding.fields
        ):
            raise UsageError(
                "--keep-raw is an option of --value and --key json, avro, protobuf and variant; others have all bytes"
            )
        if self.table.kind is not TableKind.PARQUET:
            for field_options in self.decoding.fields:
                if field_options.format is Format.VARIANT:
                    library = _LIBRARIES[self.table.kind]
                    raise UsageError(
                        f"--{field_options.name} variant: {library} cannot add files with variants to a table; use "
                        f"--table parquet, or --{field_options.name} json"
                    )

    def _check_upsert(self) -> None:
        """Raise UsageError for options that an export of the current state by key cannot have."""
        if self.adopts:
            raise UsageError("--adopt and --mode upsert exclude each other: export to another folder")
        if self.selection.start != START:
            raise UsageError("--from and --mode upsert exclude each other: the state needs all records of a topic")
        if self.selection.partitions is not None:
            raise UsageError("--partitions and --mode upsert exclude each other: the state is that of a whole topic")
        if self.table.keeps_raw:
            raise UsageError("--keep-raw and --mode upsert exclude each other: rows of the state are not written back")
        for field_options in self.decoding.fields:
            if field_options.format is Format.VARIANT:
                raise UsageError(f"--{field_options.name} variant and --mode upsert exclude each other: use json")


_LIBRARIES = {TableKind.ICEBERG: "pyiceberg", TableKind.DELTA: "deltalake"}
