"""`kctl` commands that end by SIGKILL at a moment, forked from a process that has imported what exports need.

A moment is "before N" or "after N", the commit of the N-th transaction of the process, counted from 0; "before all",
when the records of an export are committed and none of its dead letters is written; or "never".  Each batch of at most
ten rows is written in a transaction of its own.
"""

from __future__ import annotations

import atexit
import functools
import gc
import itertools
import os
import signal
import socket
import subprocess
import sys

import deltalake  # noqa: F401 - imported before the forks, as all that follows
import pyiceberg.catalog.sql  # noqa: F401

import kctl.tables.exec.task  # noqa: F401
from kctl.client.producing.transaction import Transaction
from kctl.tables.exec.targets.files import Files
from kctl.tables.exports import dead_letter_topic, importing
from kctl.tables.plans.request import ExportRequest
from kctl.tables.verification import data_files
from tests.integration.spark.peer import RUN_TIMEOUT_S
from tests.peers.fork_server import ForkServer
from tests.peers.forked_kctl import ForkedKctl, import_commands, serve

MOMENT = "KCTL_TEST_KILL_AT"
ROWS_IN_A_TRANSACTION = 10


def run_killed(moment: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a command; its exit status is -SIGKILL unless it ends before the moment."""
    environment = os.environ | {MOMENT: moment}
    return _forked().run(words, stdin=b"", environment=environment, timeout_s=RUN_TIMEOUT_S)


@functools.cache
def _forked() -> ForkedKctl:
    server = ForkServer(sys.executable, __name__)
    atexit.register(server.close)
    connected = ForkedKctl(server.address)
    atexit.register(connected.close)
    return connected


def _prepare() -> None:
    """Commits after each batch, and ends the process at the moment in its environment."""
    importing.COMMIT_MS, data_files.READ_ROWS_MAX = 0, ROWS_IN_A_TRANSACTION
    numbers, committed = itertools.count(), Transaction.commit
    written = dead_letter_topic.write_dead_letters

    async def commit(transaction: Transaction) -> None:
        number = next(numbers)
        _kill_at(f"before {number}")
        await committed(transaction)
        _kill_at(f"after {number}")

    def write(request: ExportRequest, files: Files) -> int:
        _kill_at("before all")
        return written(request, files)

    Transaction.commit = commit  # type: ignore[assignment, method-assign]
    dead_letter_topic.write_dead_letters = write


def _kill_at(moment: str) -> None:
    if moment == os.environ[MOMENT]:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    import_commands()
    _prepare()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
