"""What must hold before the first write: no process has the directories, they can be written, and there is room."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence

from kctl.errors import UsageError
from kctl.migration.planning.plan import MigrationPlan
from kctl.migration.source.cluster import StoredCluster
from kctl.storage.names import LOCK

_ROOM_FACTOR = 2
"""A file is written beside the one that it replaces, and the journal has the originals."""
_ROOM_MIN = 1 << 20


def check_stopped(cluster: StoredCluster) -> None:
    """Raise UsageError while a broker, or the session of one, is alive.  Pure."""
    if cluster.brokers:
        running = ", ".join(map(str, sorted(cluster.brokers)))
        raise UsageError(
            f"brokers are registered in ZooKeeper: {running}; stop them, or wait until ZooKeeper has expired the "
            "session of a killed one (zookeeper.session.timeout.ms)"
        )
    if cluster.controller is not None:
        raise UsageError("the session of a controller is open in ZooKeeper; wait until it has expired")


def check_same_state(cluster: StoredCluster, plan: MigrationPlan) -> None:
    """Raise UsageError unless ZooKeeper has what it had when the plan was made.  Pure."""
    check_stopped(cluster)
    if cluster.cluster_id != plan.cluster_id:
        raise UsageError(f"the plan is of cluster {plan.cluster_id}, but ZooKeeper has {cluster.cluster_id}")
    if cluster.digest != plan.zookeeper_digest:
        raise UsageError(
            "what ZooKeeper stores has changed since the plan was made: take the inventories and plan again, and "
            "convert all nodes by the new plan"
        )


@contextlib.contextmanager
def hold_directories(paths: Sequence[str]) -> Iterator[None]:
    """Lock log directories as brokers do, Apache Kafka's and ours.  Raises UsageError if another process has one."""
    with contextlib.ExitStack() as stack:
        for path in paths:
            if not os.path.isdir(path):
                continue
            descriptor = _open(f"{path}/{LOCK}")
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Java's FileLock
            except OSError:
                raise UsageError(f"another process uses {path} (.lock is locked): stop it, a broker probably") from None
        yield


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"cannot open {path}: {error.strerror}; run this as the user of the broker") from None


def check_room(contents: Mapping[str, bytes]) -> None:
    """Raise UsageError unless the files can be written: permissions, and room on each file system."""
    needed: dict[int, int] = {}
    folders: dict[int, str] = {}
    for path, data in contents.items():
        folder = _existing_folder(path)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"{folder} cannot be written: run this as the user of the broker")
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
            raise UsageError(f"{path} cannot be written: run this as the user of the broker, or make it writable")
        device = os.stat(folder).st_dev
        folders[device] = folder
        needed[device] = needed.get(device, _ROOM_MIN) + _ROOM_FACTOR * (len(data) + 4096)
    for device, size in needed.items():
        free = shutil.disk_usage(folders[device]).free
        if free < size:
            raise UsageError(f"{folders[device]} has {free} bytes free, and {size} are needed")


def _existing_folder(path: str) -> str:
    folder = os.path.dirname(path)
    while not os.path.isdir(folder) and folder not in {"", "/"}:
        folder = os.path.dirname(folder)
    return folder or "/"
