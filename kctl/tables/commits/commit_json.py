"""Plans and commits of an export folder as JSON.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kctl.client.consuming.positions import NO_EPOCH
from kctl.client.consuming.positions import Position as History
from kctl.model import TopicPartition
from kctl.tables.exec.outcome import FileOutcome, Misfit, MisfitCount, PartOutcome, WrittenFile
from kctl.tables.exec.reading.histories import UNKNOWN_HISTORY, history_of
from kctl.tables.exec.schema.column_types import (
    VARIANT,
    columns_from_json,
    columns_to_json,
    type_from_json,
    type_to_json,
)
from kctl.tables.plans.path_set import NO_PATHS, PathSet
from kctl.tables.plans.plan import (
    Compression,
    FileOptions,
    FileRange,
    HeldColumns,
    Isolation,
    PartitionRange,
    Plan,
    PlannedTopic,
    Position,
    Positions,
    Replaced,
    TopicPosition,
)

# Positions of topics as JSON, in commits of folders and of tables. Pure.


def topics_to_json(topics: Mapping[str, TopicPosition]) -> dict[str, Any]:
    """Return the positions by topic.

    Histories and replaced ranges are members of their own, which versions before them do not read.
    """
    return {
        topic: {
            "topic_id": str(position.topic_id),
            "cluster_id": position.cluster_id,
            "incarnation": position.incarnation,
            "partitions": {str(number): list(at[:2]) for number, at in sorted(position.partitions.items())},
            **_histories_to_json(position),
            **({"replaced": [list(range_) for range_ in position.replaced]} if position.replaced else {}),
        }
        for topic, position in topics.items()
    }


def topics_from_json(document: Mapping[str, Any]) -> dict[str, TopicPosition]:
    """Return the inverse of `topics_to_json`.  Raises KeyError, TypeError and ValueError for other documents."""
    return {
        topic: TopicPosition(
            UUID(position["topic_id"]),
            position["cluster_id"],
            position["incarnation"],
            {
                int(number): Position(at[0], at[1], history_from_json(position.get("histories", {}).get(number)))
                for number, at in position["partitions"].items()
            },
            tuple(Replaced(*stored) for stored in position.get("replaced", ())),
        )
        for topic, position in document.items()
    }


def history_to_json(history: History) -> list[int]:
    """Return the high watermark and leader epoch."""
    return [history.offset, history.leader_epoch]


def history_from_json(document: list[int] | None) -> History:
    """Return the inverse of `history_to_json`; None is an unknown one."""
    return UNKNOWN_HISTORY if document is None else history_of(document[0], document[1])


def _histories_to_json(position: TopicPosition) -> dict[str, Any]:
    histories = {
        str(number): history_to_json(at.history)
        for number, at in sorted(position.partitions.items())
        if at.history.leader_epoch != NO_EPOCH
    }
    return {"histories": histories} if histories else {}


FORMAT_VERSION = 3
"""Version of entries of exports with decoded keys or values.  Others have UNTYPED_VERSION, which earlier kctl can read.

Version 1 had one range per file, all incarnations in one folder, and no summary of files.
"""
UNTYPED_VERSION = 2
COMPACTION_VERSION = 4
"""Of compactions, which earlier kctl cannot read."""
VARIANT_VERSION = 5
"""Of exports with variants, which earlier kctl does not know."""
PARTIAL_VERSION = 6
"""Of commits of a part of a plan, whose other files may be planned again; earlier kctl would remove them then."""
UPSERT_VERSION = 7
"""Of exports of the current state by key, whose files replace others of the same name."""
READABLE_VERSIONS = (
    1,
    UNTYPED_VERSION,
    FORMAT_VERSION,
    COMPACTION_VERSION,
    VARIANT_VERSION,
    PARTIAL_VERSION,
    UPSERT_VERSION,
)


_NO_LETTERS = {"size": 0, "digest": "0"}
"""Dead letters of a commit that does not say, and has no decoded values."""
OPTIONS = "options"
"""The member of a commit with the options of LayoutMark, in case that file is lost; earlier commits lack it."""
COMPACTION = "compaction"
"""The member of a plan that replaces files."""
REPLACEMENT = "replacement"
"""The member of a commit whose files are published after it, over those of the same names: the prefix of their names
until then."""


class Compaction(NamedTuple):
    """The plan of a batch that replaces files by others with the same records; see kctl.tables.compaction.folder."""

    batch: int
    created_ms: int
    id: str
    """Unique, so that of two compactions at once one is refused."""
    added: tuple[str, ...]
    removed: tuple[str, ...]


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as it is written to `plans` and shown by --dry-run."""
    return {
        "version": VARIANT_VERSION if plan.has_variants else FORMAT_VERSION if plan.is_typed else UNTYPED_VERSION,
        "batch": plan.batch,
        "created_ms": plan.created_ms,
        "cluster_id": plan.cluster_id,
        "include_headers": plan.options.include_headers,
        "compression": plan.options.compression,
        "isolation": plan.options.isolation,
        "topics": {
            topic: {
                "topic_id": str(planned.topic_id),
                "incarnation": planned.incarnation,
                **columns_to_json(planned.columns),
            }
            for topic, planned in plan.topics.items()
        },
        "ranges": [
            {
                "topic": range_.tp.topic,
                "partition": range_.tp.partition,
                "start": range_.start,
                "end": range_.end,
                "incarnation": range_.incarnation,
                "lost": range_.lost,
                "files": [{"start": file.start, "end": file.end, "path": file.path} for file in range_.files],
                **({"history": history_to_json(range_.history)} if range_.history != UNKNOWN_HISTORY else {}),
                **({"replaced": list(range_.replaced)} if range_.replaced else {}),
            }
            for range_ in plan.ranges
        ],
    }


def plan_from_json(document: Mapping[str, Any]) -> Plan:
    """Return the inverse of `plan_to_json`."""
    return Plan(
        batch=document["batch"],
        created_ms=document["created_ms"],
        cluster_id=document["cluster_id"],
        options=FileOptions(
            include_headers=document["include_headers"],
            compression=Compression(document["compression"]),
            isolation=Isolation(document["isolation"]),
        ),
        topics={
            topic: PlannedTopic(UUID(planned["topic_id"]), planned["incarnation"], columns_from_json(planned))
            for topic, planned in document["topics"].items()
        },
        ranges=tuple(_range_from_json(range_) for range_ in document["ranges"]),
    )


def _range_from_json(document: Mapping[str, Any]) -> PartitionRange:
    return PartitionRange(
        TopicPartition(document["topic"], document["partition"]),
        document["start"],
        document["end"],
        document["incarnation"],
        tuple(FileRange(file["start"], file["end"], file["path"]) for file in document["files"]),
        document["lost"],
        history_from_json(document.get("history")),
        Replaced(*document["replaced"]) if "replaced" in document else None,
    )


def commit_to_json(
    plan: Plan,
    outcomes: Mapping[str, FileOutcome],
    after: Positions,
    now_ms: int,
    dropped: Collection[str] = (),
) -> dict[str, Any]:
    """Return the commit of a plan; `outcomes` has an entry for every planned path, `after` are the positions after it.

    `dropped` are files of the written plan that are not part of the commit.
    """
    letters = [outcome.dead_letters for outcome in outcomes.values() if outcome.dead_letters is not None]
    is_typed = plan.is_typed or any(held != HeldColumns() for held in after.columns.values())
    return {
        "version": PARTIAL_VERSION
        if dropped
        else VARIANT_VERSION
        if _has_variants(after)
        else FORMAT_VERSION
        if is_typed
        else UNTYPED_VERSION,
        "batch": plan.batch,
        "committed_ms": now_ms,
        "files": [
            _file_to_json(path, shares, outcomes[path]) for path, shares in plan.shares().items() if outcomes[path].path
        ],
        **({"removed": sorted(dropped)} if dropped else {}),
        "lost": _lost_to_json(plan, outcomes),
        **({"unreadable": unreadable} if (unreadable := unreadable_to_json(outcomes.values())) else {}),
        **({"filtered": filtered} if (filtered := _filtered_to_json(plan, outcomes)) else {}),
        **({"misfits": misfits} if (misfits := misfits_to_json(outcomes.values())) else {}),
        **_after_to_json(after),
        **({"columns": _held_to_json(after)} if is_typed else {}),
        **(_letters_of(after, letters) if is_typed or after.dead_letters != NO_PATHS else {}),
    }


class StateCommit(NamedTuple):
    """The files of a commit of the current state by key."""

    replacement: str
    """The prefix of the names of the files until they are published."""
    files: Sequence[WrittenFile]
    """With the paths that they are published under."""
    removed: Sequence[str]
    """Files that no other one replaces."""


def state_commit_to_json(
    plan: Plan,
    outcomes: Mapping[str, FileOutcome],
    state: StateCommit,
    after: Positions,
    now_ms: int,
    dropped: Collection[str] = (),
) -> dict[str, Any]:
    """Return the commit of a batch of changes, see `commit_to_json`."""
    document = commit_to_json(plan, outcomes, after, now_ms, dropped)
    return {
        **document,
        "version": UPSERT_VERSION,
        "files": [{"path": file.path, "records": file.records, "bytes": file.size} for file in state.files],
        "removed": list(state.removed),
        REPLACEMENT: state.replacement,
    }


def compaction_plan_to_json(plan: Compaction) -> dict[str, Any]:
    """Return a plan that replaces files."""
    return {"version": COMPACTION_VERSION, "batch": plan.batch, COMPACTION: plan._asdict()}


def compaction_to_json(plan: Compaction, files: Sequence[WrittenFile], after: Positions, now_ms: int) -> dict[str, Any]:
    """Return the commit of a compaction; without `files` it was abandoned, and replaced nothing."""
    return {
        "version": VARIANT_VERSION if _has_variants(after) else COMPACTION_VERSION,
        "batch": plan.batch,
        "committed_ms": now_ms,
        "files": [{"path": file.path, "records": file.records, "bytes": file.size} for file in files],
        "removed": list(plan.removed if files else ()),
        **_after_to_json(after),
        "columns": _held_to_json(after),
        "all_dead_letters": _path_set_to_json(after.dead_letters),
        "all_dead_letter_sizes": _path_set_to_json(after.dead_letter_sizes),
    }


def _after_to_json(after: Positions) -> dict[str, Any]:
    return {
        "include_headers": after.include_headers,
        "all_files": _path_set_to_json(after.files),
        "all_sizes": _path_set_to_json(after.sizes),
        "positions": topics_to_json(after.topics),
        **({"all_misfits": all_misfits_to_json(after.misfits)} if after.misfits else {}),
    }


def _has_variants(after: Positions) -> bool:
    return any(VARIANT in held for held in after.columns.values())


def _held_to_json(after: Positions) -> dict[str, Any]:
    return {
        topic: {"key": type_to_json(held.key), "value": type_to_json(held.value)}
        for topic, held in after.columns.items()
    }


def _letters_of(after: Positions, letters: Iterable[WrittenFile]) -> dict[str, Any]:
    return {
        "dead_letters": list(map(_letters_to_json, letters)),
        "all_dead_letters": _path_set_to_json(after.dead_letters),
        "all_dead_letter_sizes": _path_set_to_json(after.dead_letter_sizes),
    }


def _letters_to_json(file: WrittenFile) -> dict[str, Any]:
    return {"path": file.path, "records": file.records, "bytes": file.size}


def _file_to_json(
    path: str, shares: Sequence[tuple[PartitionRange, FileRange]], outcome: FileOutcome
) -> dict[str, Any]:
    paths = [file.path for file in outcome.written]
    sizes = [file.size for file in outcome.written]
    return {
        "path": path,
        **({"paths": paths, "sizes": sizes} if paths != [path] else {}),
        "records": outcome.records,
        "bytes": outcome.bytes_out,
        "ranges": [
            {
                "topic": range_.tp.topic,
                "partition": range_.tp.partition,
                "start": file.start,
                "end": file.end,
                "records": part.records,
            }
            for (range_, file), part in zip(shares, outcome.parts, strict=True)
        ],
    }


def sizes_from_json(document: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the sizes of the data files of a task by path; None where the commit has only that of all together."""
    if "paths" not in document:
        return {document["path"]: document["bytes"]}
    paths = document["paths"]
    return dict(zip(paths, document.get("sizes", [None] * len(paths)), strict=True))


def _lost_to_json(plan: Plan, outcomes: Mapping[str, FileOutcome]) -> dict[str, int]:
    lost: dict[str, int] = {}
    for range_, parts in parts_of(plan, outcomes):
        count = range_.lost + sum(part.lost for part in parts)
        if count:
            lost[str(range_.tp)] = lost.get(str(range_.tp), 0) + count
    return lost


def unreadable_to_json(outcomes: Iterable[FileOutcome]) -> list[dict[str, Any]]:
    """Return the offsets that were left out because their batches are corrupt."""
    return [
        {
            "topic": range_.tp.topic,
            "partition": range_.tp.partition,
            "start": range_.start,
            "end": range_.end,
            "bytes": range_.size,
            "reason": range_.reason,
        }
        for outcome in outcomes
        for range_ in outcome.unreadable
    ]


def misfits_to_json(outcomes: Iterable[FileOutcome]) -> list[dict[str, Any]]:
    """Return the values that are in columns of the rest, by column; there are at most MISFITS_MAX and one."""
    count = MisfitCount()
    for outcome in outcomes:
        for misfit in outcome.misfits:
            count.add(misfit)
    return [misfit._asdict() for misfit in count.misfits]


def all_misfits_to_json(misfits: Mapping[str, Iterable[Misfit]]) -> list[dict[str, Any]]:
    """Return the misfits of all batches."""
    return [misfit._asdict() for of_topic in misfits.values() for misfit in of_topic]


def all_misfits_from_json(document: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Misfit, ...]]:
    """Return the inverse of `all_misfits_to_json`.  Raises TypeError for other documents."""
    misfits: dict[str, tuple[Misfit, ...]] = {}
    for stored in document:
        misfit = Misfit(**stored)
        misfits[misfit.topic] = (*misfits.get(misfit.topic, ()), misfit)
    return misfits


def _filtered_to_json(plan: Plan, outcomes: Mapping[str, FileOutcome]) -> dict[str, int]:
    filtered: Counter[str] = Counter()
    for range_, parts in parts_of(plan, outcomes):
        filtered[str(range_.tp)] += sum(part.filtered for part in parts)
    return dict(+filtered)


def parts_of(plan: Plan, outcomes: Mapping[str, FileOutcome]) -> list[tuple[PartitionRange, list[PartOutcome]]]:
    """Return the results of every range, one part per file.  `outcomes` has an entry for every planned path."""
    parts = {
        (file.path, range_.tp, file.start): part
        for path, shares in plan.shares().items()
        for (range_, file), part in zip(shares, outcomes[path].parts, strict=True)
    }
    return [(range_, [parts[file.path, range_.tp, file.start] for file in range_.files]) for range_ in plan.ranges]


def _path_set_to_json(paths: PathSet | None) -> dict[str, Any] | None:
    return None if paths is None else {"size": paths.size, "digest": f"{paths.digest:032x}"}


def _path_set_from_json(document: Mapping[str, Any] | None) -> PathSet | None:
    return None if document is None else PathSet(document["size"], int(document["digest"], 16))


def positions_from_json(document: Mapping[str, Any], batch: int) -> Positions:
    """Return the positions after the commit of a batch.

    Raises KeyError, TypeError and ValueError for other documents.
    """
    held = document.get("columns")
    columns = (
        {topic: HeldColumns() for topic in document["positions"]}
        if held is None
        else {
            topic: HeldColumns(type_from_json(column["key"]), type_from_json(column["value"]))
            for topic, column in held.items()
        }
    )
    letters = _path_set_from_json(document.get("all_dead_letters", _NO_LETTERS if held is None else None))
    return Positions(
        last_batch=batch,
        topics=topics_from_json(document["positions"]),
        include_headers=document["include_headers"],
        files=_path_set_from_json(document.get("all_files")),
        sizes=_path_set_from_json(document.get("all_sizes")),
        dead_letters=letters,
        dead_letter_sizes=letters
        if letters == NO_PATHS
        else _path_set_from_json(document.get("all_dead_letter_sizes")),
        columns=columns,
        misfits=all_misfits_from_json(document.get("all_misfits", ())),
    )
