"""The state after the changes of a batch: what an export passes on from its plan to kctl.tables.upserts.state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import pyarrow as pa

from kctl.tables.exec.outcome import FileOutcome, WrittenFile
from kctl.tables.exec.targets.files import Files
from kctl.tables.plans.plan import HeldColumns, Plan, Positions
from kctl.tables.upserts.changed_keys import ChangedKeys, StateOptions, is_created_again
from kctl.tables.upserts.state import StateRequest, write_state


class NewFiles(NamedTuple):
    """The files of a batch, and the current ones that they replace, by paths relative to the target."""

    files: list[WrittenFile]
    removed: list[str]
    keys: ChangedKeys


def write_batch(
    files: Files,
    upsert: StateOptions,
    plan: Plan,
    topic: str,
    outcomes: Mapping[str, FileOutcome],
    positions: Positions,
    *,
    schema: pa.Schema,
    current: Collection[str],
    place: Callable[[str], str],
) -> NewFiles:
    """Write the files of the buckets that the changes of a topic have touched.

    `positions` are those before the batch, `schema` has the columns of records, and `place` returns the path of
    the file with a name.  Raises as `write_state`.
    """
    is_cleared = is_created_again(plan, topic, positions)
    held, columns = positions.columns.get(topic), plan.topics[topic].columns
    paths = dict.fromkeys(file.path for range_ in plan.ranges if range_.tp.topic == topic for file in range_.files)
    state = write_state(
        files,
        StateRequest(
            changes=[file.path for path in paths for file in outcomes[path].written],
            current=current,
            is_cleared=is_cleared,
            place=place,
            schema=schema,
            columns=columns,
            options=upsert.options,
            compression=plan.options.compression.value,
            gets_columns=held is not None and held != HeldColumns(columns.key.type, columns.value.type),
            bucket_bytes_max=upsert.bucket_bytes_max,
            layout=upsert.layout,
            cleared_us=plan.created_ms * 1000,
        ),
    )
    keys = ChangedKeys(
        state.upserted, state.deleted, state.outdated, state.moved, is_cleared=is_cleared and bool(state.removed)
    )
    return NewFiles(state.files, state.removed, keys)
