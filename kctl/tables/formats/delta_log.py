"""The log of a Delta table: application transactions, which deltalake looks up by name but does not list.

A `txn` action has an application id and a version; the last one of each id counts. Checkpoints contain them all, so
they survive the deletion of old commits, unlike the information in commits.

    kctl                                                          version: the batch
    kctl/CLUSTER-ID/TOPIC/TOPIC-ID/INCARNATION/PARTITION          version: the offset after the last exported one
    the same with /high-watermark and /leader-epoch               of the log when that was planned
    the same with /replaced                                       the first offset whose row is of a record that the
                                                                  topic lost; the incarnation has ended
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq

from kctl.client.consuming.positions import NO_EPOCH
from kctl.client.consuming.positions import Position as History
from kctl.errors import KctlError
from kctl.model import ZERO_UUID
from kctl.tables.exec.reading.histories import UNKNOWN_HISTORY, history_of
from kctl.tables.exec.targets.files import Files
from kctl.tables.plans.plan import REPLACED_RANGES_MAX, Position, Replaced, TopicPosition

BATCH_ID = "kctl"
COMMITS_READ_MAX = 200
"""Of other programs since the last batch."""


class BrokenDeltaLog(KctlError):
    """A commit of the table is missing."""


_APP_ID = re.compile(
    r"kctl/(?P<cluster>[^/]*)/(?P<topic>[^/]+)/(?P<id>[0-9a-f-]{36})/(?P<incarnation>\d+)/(?P<partition>\d+)"
    r"(?P<detail>/[a-z-]+)?"
)
HIGH_WATERMARK, LEADER_EPOCH, REPLACED = "/high-watermark", "/leader-epoch", "/replaced"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(?P<version>\d{20})\.checkpoint\.(\d{10}\.(?P<parts>\d{10})\.|[^.]+\.)?(parquet|json)")


def app_transactions(files: Files, directory: str, version: int) -> dict[str, int]:
    """Return the last version of each application id as of a version of the table.

    Does not use `_last_checkpoint`, which is optional.  Raises BrokenDeltaLog if a commit is missing.
    """
    log = f"{directory}/_delta_log".lstrip("/")
    names = files.names(log)
    checkpoint, checkpoint_names = _last_checkpoint(names, version)
    commits = {int(match[1]): name for name in names if (match := _COMMIT.fullmatch(name))}
    versions: dict[str, int] = {}
    for name in checkpoint_names:
        versions.update(_of_checkpoint(files, f"{log}/{name}"))
    for number in range(checkpoint + 1, version + 1):
        if number not in commits:
            raise BrokenDeltaLog(f"{log}/{number:020}.json is missing: restore it")
        versions.update(_of_lines(files.read(f"{log}/{commits[number]}")))
    return versions


def is_batch_of(files: Files, directory: str, version: int, batch: int) -> bool:
    """Return whether an export committed this version as its batch."""
    path = f"{directory}/_delta_log/{version:020}.json".lstrip("/")
    try:
        return _of_lines(files.read(path)).get(BATCH_ID) == batch
    except FileNotFoundError:
        return False  # deleted, after a checkpoint


def information_of(files: Files, directory: str, version: int) -> dict[str, Any]:
    """Return the commit information of a version; empty if the commit has none, or was deleted after a checkpoint."""
    try:
        data = files.read(f"{directory}/_delta_log/{version:020}.json".lstrip("/"))
    except FileNotFoundError:
        return {}
    return _information(data)


def is_based_on(files: Files, directory: str, version: int, batch: int) -> bool:
    """Return whether the rows of a version come from a version at or after the commit of a batch, by RESTORE as well.

    RESTORE brings back the files of an earlier version, but not its application transactions.  True if commits that
    would tell were deleted or are too many.
    """
    for _ in range(COMMITS_READ_MAX):
        try:
            data = files.read(f"{directory}/_delta_log/{version:020}.json".lstrip("/"))
        except FileNotFoundError:
            return True
        batch_id = _of_lines(data).get(BATCH_ID)
        if batch_id is not None:
            return batch_id >= batch
        information = _information(data)
        if information.get("operation") == "RESTORE":
            restored = str(information.get("operationParameters", {}).get("version"))
            if not restored.isdecimal():
                return False  # to a time, which is written as the user gave it
            version = int(restored)
        else:
            version -= 1
    return True


def transactions_of(topics: Mapping[str, TopicPosition]) -> dict[str, int]:
    """Return the application transactions for positions."""
    versions: dict[str, int] = {}
    for topic, position in topics.items():
        prefix = f"kctl/{position.cluster_id}/{topic}/{position.topic_id}"
        for partition, at in position.partitions.items():
            app_id = f"{prefix}/{at.incarnation}/{partition}"
            versions[app_id] = at.offset
            if at.history.leader_epoch != NO_EPOCH:
                versions[f"{app_id}{HIGH_WATERMARK}"] = at.history.offset
                versions[f"{app_id}{LEADER_EPOCH}"] = at.history.leader_epoch
        for range_ in position.replaced:
            versions[f"{prefix}/{range_.incarnation}/{range_.partition}{REPLACED}"] = range_.start
    return versions


def positions_in(transactions: Mapping[str, int]) -> dict[str, TopicPosition]:
    """Return the inverse of `transactions_of`, with transactions of former incarnations among them.

    A topic was created again if its highest incarnation has another id.  Where a broker had no topic ids, the
    transactions with an id are the later ones.
    """
    matches = [
        (match, version)
        for app_id, version in transactions.items()
        if (match := _APP_ID.fullmatch(app_id)) and match["detail"] is None
    ]
    topics: dict[str, TopicPosition] = {}
    for topic in {match["topic"] for match, _ in matches}:
        entries = [
            (
                Position(version, int(match["incarnation"]), _history_in(transactions, match[0])),
                UUID(match["id"]),
                match["cluster"],
                int(match["partition"]),
            )
            for match, version in matches
            if match["topic"] == topic
        ]
        # Ordered so that later entries replace earlier ones.
        entries.sort(key=lambda entry: (entry[0].incarnation, entry[1] != ZERO_UUID, entry[0].offset))
        last, topic_id, cluster_id, _ = entries[-1]
        same = {topic_id, ZERO_UUID} if _is_one_topic(entries, topic_id) else {topic_id}
        partitions = {partition: at for at, id_, _, partition in entries if id_ in same}
        replaced = [
            Replaced(partition, at.incarnation, start, at.offset, at.history.leader_epoch)
            for at, id_, cluster, partition in entries
            if id_ in same
            and (start := transactions.get(f"kctl/{cluster}/{topic}/{id_}/{at.incarnation}/{partition}{REPLACED}"))
            is not None
        ]
        topics[topic] = TopicPosition(
            topic_id, cluster_id, last.incarnation, partitions, tuple(replaced[-REPLACED_RANGES_MAX:])
        )
    return topics


def _history_in(transactions: Mapping[str, int], app_id: str) -> History:
    end = transactions.get(f"{app_id}{HIGH_WATERMARK}", UNKNOWN_HISTORY.offset)
    return history_of(end, transactions.get(f"{app_id}{LEADER_EPOCH}", NO_EPOCH))


def _is_one_topic(entries: Iterable[tuple[Position, UUID, str, int]], topic_id: UUID) -> bool:
    """Return whether entries without a topic id are of the topic that has one: the incarnation is the same."""
    incarnations = {at.incarnation for at, id_, _, _ in entries if id_ == topic_id}
    without = {at.incarnation for at, id_, _, _ in entries if id_ == ZERO_UUID}
    return bool(incarnations & without)


def _last_checkpoint(names: Iterable[str], version: int) -> tuple[int, list[str]]:
    """Return the last complete checkpoint up to a version, and its files; (-1, []) without one."""
    checkpoints: dict[tuple[int, str], list[str]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match and int(match["version"]) <= version:
            checkpoints.setdefault((int(match["version"]), match["parts"] or "1"), []).append(name)
    whole = [(number, held) for (number, parts), held in checkpoints.items() if len(held) >= int(parts)]
    # Without parts there may be several checkpoints of one version with equal contents.
    return max(whole, default=(-1, []))


def _of_checkpoint(files: Files, path: str) -> dict[str, int]:
    if path.endswith("json"):
        return _of_lines(files.read(path))
    with files.open(path) as file:
        rows = pq.read_table(file, columns=["txn"]).column("txn").to_pylist()
    return dict(_pairs({"txn": row} for row in rows if row))


def _of_lines(data: bytes) -> dict[str, int]:
    return dict(_pairs(json.loads(line) for line in data.splitlines() if b'"txn"' in line))


def _information(data: bytes) -> dict[str, Any]:
    actions = [json.loads(line) for line in data.splitlines() if b'"commitInfo"' in line]
    return next((dict(action["commitInfo"]) for action in actions if "commitInfo" in action), {})


def _pairs(actions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    for action in actions:
        transaction = action.get("txn")
        if transaction:
            yield transaction["appId"], transaction["version"]
