"""Runs the tasks of a plan in processes of this machine, without Spark.

The processes are forked from a server process that has imported numpy and pyarrow once; each runs one task after the
other.  A process that is killed, for example because memory is short, ends one attempt of its task.  The processes exit
when the driver has ended; the next run completes the batch.

A plan with one small task is run in the driver: starting processes would take longer than the task.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.system.hidden_packages import hide_pandas
from kctl.tables.engines.job import JobProgress, TaskRunner, progress_directory
from kctl.tables.exec.outcome import Failure, FileOutcome
from kctl.tables.exec.progress import TaskProgress, running_tasks
from kctl.tables.exec.worker import run_pickled

if TYPE_CHECKING:
    from kctl.tables.exec.file_task import FileTask

POLL_INTERVAL_S = 0.1
DRIVER_OFFSETS_MAX = 50_000
"""Offsets of a single task that is run in the driver."""
ATTEMPTS = 4
"""Attempts of a task whose process is killed, as in Spark."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Options of the local engine."""

    processes: int
    """Number of concurrent tasks; at least 1."""

    @property
    def parallelism(self) -> int:
        """Number of concurrent tasks."""
        return self.processes


@contextlib.contextmanager
def local_runner(settings: LocalSettings) -> Iterator[TaskRunner]:
    """Start the local engine for one run."""
    # Read when numpy is imported: its linear algebra, of which an export needs none, starts a thread per processor.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    yield LocalRunner(settings.processes)


@dataclass(slots=True)
class _Worker:
    """A process, the pipe to it, and its task."""

    process: ForkServerProcess
    pipe: Connection
    task: FileTask


class LocalRunner:
    """Tasks in at most `processes` processes."""

    app_id = ""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["kctl.tables.exec.task"])

    def run(self, tasks: Sequence[FileTask], on_progress: Callable[[JobProgress], None]) -> dict[str, FileOutcome]:
        """See TaskRunner.  An exception, for example a KeyboardInterrupt, kills the processes and propagates."""
        if len(tasks) == 1 and tasks[0].offset_count <= DRIVER_OFFSETS_MAX:
            return _run_here(tasks[0], on_progress)
        with progress_directory(tasks[0].target) as directory:
            return self._run(tasks, on_progress, directory)

    def _run(
        self, tasks: Sequence[FileTask], on_progress: Callable[[JobProgress], None], directory: Path
    ) -> dict[str, FileOutcome]:
        waiting = deque(tasks)
        workers: list[_Worker] = []
        outcomes: dict[str, FileOutcome] = {}
        deaths: Counter[str] = Counter()
        offsets = reused_offsets = 0
        try:
            while waiting or workers:
                while waiting and len(workers) < self._processes:
                    workers.append(self._start(waiting.popleft(), directory))
                ready = wait([worker.pipe for worker in workers], POLL_INTERVAL_S)
                for worker in [candidate for candidate in workers if candidate.pipe in ready]:
                    task = worker.task
                    outcome = _received(worker.pipe)
                    if outcome is None or not waiting:
                        workers.remove(worker)
                        _end(worker)
                    if outcome is None:
                        deaths[task.path] += 1
                        if deaths[task.path] < ATTEMPTS:
                            waiting.append(task)
                            continue
                        outcome = FileOutcome(failure=Failure.FAILED, message=_death(task, worker.process))
                    elif waiting:
                        worker.task = waiting.popleft()
                        _send(worker)
                    outcomes[task.path] = outcome
                    offsets += task.offset_count
                    reused_offsets += task.offset_count if outcome.is_reused else 0
                running = running_tasks(directory)
                on_progress(_progress(outcomes, len(tasks), offsets, running, reused_offsets))
        finally:
            for worker in workers:
                worker.process.kill()
                _end(worker)
        return outcomes

    def _start(self, task: FileTask, directory: Path) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_run_tasks, args=(str(directory), theirs), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours, task)
        _send(worker)
        return worker


def _run_here(task: FileTask, on_progress: Callable[[JobProgress], None]) -> dict[str, FileOutcome]:
    """Run the only task in this process."""
    from kctl.tables.exec.task import export_file  # noqa: PLC0415 - imports numpy and pyarrow

    outcome = export_file(task, report=lambda done: on_progress(_progress({}, 1, 0, done)))
    outcomes = {task.path: outcome}
    on_progress(_progress(outcomes, 1, task.offset_count, TaskProgress()))
    return outcomes


def _send(worker: _Worker) -> None:
    """Send the worker its task, which has secrets of the client: never give it as an argument of a process."""
    with contextlib.suppress(OSError):  # the worker has died, which the next read finds
        worker.pipe.send_bytes(pickle.dumps(worker.task))


def _received(pipe: Connection) -> FileOutcome | None:
    """Return the outcome of a task; None if its process has died."""
    try:
        outcome = pipe.recv()
    except (EOFError, OSError):
        return None
    assert isinstance(outcome, FileOutcome)
    return outcome


def _end(worker: _Worker) -> None:
    """End a worker, which exits at the end of its pipe."""
    worker.pipe.close()
    worker.process.join()


def _run_tasks(directory: str, pipe: Connection) -> None:
    """Run, in a process of its own, the tasks that come through the pipe, until it ends."""
    hide_pandas()
    # The terminal sends SIGINT to all processes; the driver ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_driver, name="end-with-driver", daemon=True).start()
    while True:
        try:
            pickled = pipe.recv_bytes()
        except EOFError:
            return
        try:
            outcome = run_pickled(pickled, directory)
        except Exception as error:
            outcome = FileOutcome(failure=Failure.FAILED, message=f"{type(error).__name__}: {error}")
        pipe.send(outcome)


def _end_with_driver() -> None:
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os._exit(1)


def _death(task: FileTask, process: ForkServerProcess) -> str:
    code = process.exitcode or 0
    reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    return f"the process of {task.path} died {ATTEMPTS} times ({reason}); it may need more memory than this machine has"


def _progress(
    outcomes: dict[str, FileOutcome], files: int, offsets: int, running: TaskProgress, reused_offsets: int = 0
) -> JobProgress:
    reused = [outcome for outcome in outcomes.values() if outcome.is_reused]
    return JobProgress(
        files_done=len(outcomes),
        files_total=files,
        offsets=offsets + running.offsets,
        records=sum(outcome.records for outcome in outcomes.values()) + running.records,
        bytes_in=sum(outcome.bytes_in for outcome in outcomes.values()) + running.bytes_in,
        reused=TaskProgress(
            reused_offsets, sum(outcome.records for outcome in reused), sum(outcome.bytes_in for outcome in reused)
        ),
    )
