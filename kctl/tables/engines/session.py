"""Starts and stops Spark in this process.

Only Spark's core is started, without SQL, because tasks fetch and write without Spark's readers.  This and the JVM
flags below (little JIT compilation, because the JVM does little work) save most of the start time.  With a local master
all sockets listen on loopback.  JVM messages go to a log file, which is named in errors and deleted otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import kctl
from kctl.errors import KctlError, UsageError
from kctl.tables.engines import executor_watch
from kctl.tables.engines.executor_watch import Seen, WatchState
from kctl.tables.engines.package import build_package
from kctl.tables.exec.worker import problem

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
from kctl.limits import Subject, bound

CHECKED_EXECUTOR_CORES_MAX = bound(
    Subject.EXPORTS,
    "cores of Spark's executors whose Python packages are checked before an export is planned",
    256,
    "cores",
    on_excess="the others are checked by the tasks",
)


# Work in a daemon thread, so that an interrupt of the main thread does not wait for it.


Result = TypeVar("Result")


def in_background(work: Callable[[], Result], *, name: str) -> Future[Result]:
    """Start the work in a thread of its own."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def is_done_within(future: Future[Result], timeout_s: float) -> bool:
    """Wait for the end of the work, at most this long."""
    try:
        future.exception(timeout=timeout_s)
    except TimeoutError:
        return False
    return True


LOOPBACK = "127.0.0.1"
JVM_END_TIMEOUT_S = 60
"""The JVM normally ends within a second."""
ARCHIVE_TIMEOUT_S = 900
"""End of a JVM that writes a class archive: ten seconds of CPU time, much longer on a busy machine."""
MASTER_CONNECT_TIMEOUT_S = 10
MASTER_POLL_TIMEOUT_S = 1
POLL_INTERVAL_S = 0.1
WATCH_INTERVAL_MS = 1_000
PORT_MAX = 65_535
JVM_DEATH_TIMEOUT_S = 5
"""How long to wait for the exit status of a JVM that no longer responds."""

JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
APP_NAME = "kctl export"
IO_ENCRYPTION = "spark.io.encryption.enabled"
LOCAL_ATTEMPTS = 4
"""Attempts of a task on a local master if its worker process crashes; other masters use spark.task.maxFailures."""

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:, *(\d+))?\])?\Z")
_HOST_PORT = r"(?:\[[0-9a-fA-F:.]+\]|[^\s,:/\[\]]+):\d{1,5}"
_STANDALONE = re.compile(rf"spark://({_HOST_PORT}(?:,{_HOST_PORT})*)\Z")
_OTHER = re.compile(r"(?:yarn|local-cluster\[\d+, *\d+, *\d+\]|k8s://\S+)\Z")
_REASON = "Exception in thread"
_NO_REASON = re.compile(r"WARNING|Using Spark's default|::|\s|\d\d:\d\d:\d\d (?:WARN|INFO|DEBUG) ")
"""Lines of a JVM's output that do not contain the reason of its end."""
_LOST_TASK = re.compile(r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \((\S+) executor \S+\): ")
"""What Spark puts before the exception of a task."""
_LOG_SETTINGS = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class SparkMissing(KctlError):
    """PySpark, another required package or Java is not installed."""


class SparkFailed(KctlError):
    """Spark did not start, or a job failed in Spark."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Options of Spark.  Raises UsageError for an invalid master."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark properties that override the ones set here."""
    is_cluster_mode: bool = False
    """Whether the driver runs in the cluster as well: --deploy-mode cluster."""
    packages: tuple[str, ...] = ()
    """Python packages that tasks need beside those of every task."""
    has_secrets: bool = False
    """Whether tasks contain credentials of the Kafka cluster.  Spark then encrypts what it writes to disks."""

    def __post_init__(self) -> None:
        is_known = any(known.match(self.master) for known in (_LOCAL, _STANDALONE, _OTHER))
        if not is_known or any(not 0 < port <= PORT_MAX for _, port in self.standalone_addresses):
            raise UsageError(
                f"'{self.master}' is not a Spark master; write local[*], local[N], spark://HOST:PORT, yarn or k8s://URL"
            )
        if self.is_cluster_mode and not self.master.startswith(("yarn", "k8s://")):
            reason = "has no cluster" if self.is_local else "runs Python programs in client mode only"
            raise UsageError(f"--deploy-mode cluster needs --master yarn or k8s://URL; '{self.master}' {reason}")

    @property
    def is_local(self) -> bool:
        """True for the masters local, local[N] and local[*]."""
        return _LOCAL.match(self.master) is not None

    @property
    def parallelism(self) -> int:
        """Number of concurrent tasks on a local master; 1 for other masters, where it is unknown."""
        found = _LOCAL.match(self.master)
        if not found or found[1] is None:
            return 1
        return os.cpu_count() or 1 if found[1] == "*" else max(int(found[1]), 1)

    @property
    def sends_secrets_openly(self) -> bool:
        """Whether the executors get credentials over connections that these settings do not encrypt."""
        return (
            self.has_secrets
            and not self.is_local
            and "true" not in {self.conf.get("spark.network.crypto.enabled"), self.conf.get("spark.ssl.rpc.enabled")}
        )

    @property
    def standalone_addresses(self) -> list[tuple[str, int]]:
        """Host and port of each standalone master."""
        found = _STANDALONE.match(self.master)
        pairs = [address.rpartition(":") for address in found[1].split(",")] if found else []
        return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def is_submitted() -> bool:
    """Return whether spark-submit runs this program; it has started the JVM and selected the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def require_spark() -> None:
    """Raise SparkMissing with instructions if a requirement is missing."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise SparkMissing(f"{', '.join(missing)} missing: pip install 'kctl-kafka[spark]'")
    home = os.environ.get("SPARK_HOME")
    if home is not None and not Path(home, "bin", "spark-submit").is_file():
        raise SparkMissing(f"SPARK_HOME is '{home}', where no bin/spark-submit is: correct or unset it")
    if java() is None:
        raise SparkMissing("Spark needs Java 17 or newer: install a JRE (openjdk-17-jre-headless) or set JAVA_HOME")


def java() -> str | None:
    """Return the Java that Spark will use: from JAVA_HOME, else from the PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")


class RunningSpark:
    """A running Spark application and its log."""

    def __init__(
        self,
        context: SparkContext,
        process: subprocess.Popen[bytes] | None,
        log: Path,
        settings: SparkSettings,
        on_note: Callable[[str], None],
    ) -> None:
        """`process` is None if spark-submit has started the JVM; `on_note` is called while executors are waited for."""
        self.context = context
        self._process = process
        self._log = log
        self._settings = settings
        self._on_note = on_note

    @property
    def app_id(self) -> str:
        """Spark's name for this application."""
        return str(self.context.applicationId)

    def run_job(self, group: str, work: Callable[[], Result], on_poll: Callable[[], None] = lambda: None) -> Result:
        """Run a job in a thread of its own, and `on_poll` meanwhile.

        Raises SparkFailed if the job fails or has no executors any more.  Then, and at any exception of `on_poll`, the
        job is cancelled.
        """
        watch = _ExecutorWatch(self, self._settings, self._on_note)

        def run() -> Result:
            self.context.setJobGroup(group, group, interruptOnCancel=True)
            return work()

        job = in_background(run, name=group)
        try:
            while not is_done_within(job, POLL_INTERVAL_S):
                on_poll()
                watch.poll()
        except BaseException:
            with contextlib.suppress(Exception):  # the JVM may be dead
                self.context.cancelJobGroup(group)
            raise
        error = job.exception()
        if isinstance(error, Exception):
            raise self.failure(error) from error
        return job.result()

    def executor_count(self) -> int | None:
        """Return the number of registered executors; None if the JVM does not tell."""
        try:
            infos = self.context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - Python's lacks it
            return len(infos) - 1  # without the driver
        except Exception:
            return None  # the job fails too, and tells the reason

    def lost(self, reason: str) -> SparkFailed:
        """Return the exception for a job without executors; keep the log."""
        return SparkFailed(f"{reason}{_log_note(self._log)}")

    def failure(self, error: Exception) -> SparkFailed:
        """Return the exception for a failed job; keep the log."""
        reason = _death(self._process, error) or f"the Spark job failed: {_message(error)}"
        return SparkFailed(f"{reason}{_log_note(self._log)}")


class _ExecutorWatch:
    """Watches the executors of a job; those of a local master are this machine."""

    def __init__(self, spark: RunningSpark, settings: SparkSettings, on_note: Callable[[str], None]) -> None:
        self._spark = spark
        self._settings = settings
        self._on_note = on_note
        self._state = WatchState(None)
        self._polled_ms = -WATCH_INTERVAL_MS

    def poll(self) -> None:
        """Raise SparkFailed if the job is to be given up."""
        now_ms = time.monotonic_ns() // 1_000_000
        if self._settings.is_local or now_ms - self._polled_ms < WATCH_INTERVAL_MS:
            return
        self._polled_ms = now_ms
        count = self._spark.executor_count()
        if count is None:
            return
        is_gone = count == 0 and bool(_unreachable_masters(self._settings, MASTER_POLL_TIMEOUT_S))
        self._state, verdict = executor_watch.step(self._state, Seen(count, is_gone), now_ms)
        if verdict.error:
            raise self._spark.lost(verdict.error)
        if verdict.note:
            self._on_note(f"{verdict.note} (Spark master {self._settings.master})")


@contextlib.contextmanager
def running_spark(
    settings: SparkSettings,
    *,
    name: str = APP_NAME,
    class_archive_option: str = "",
    end_timeout_s: float | None = None,
    on_note: Callable[[str], None] = lambda text: None,
) -> Iterator[RunningSpark]:
    """Run Spark with kctl's code on its executors.  Raises SparkFailed, and UsageError for an invalid master.

    `on_note` is called while executors are waited for.

    `class_archive_option` makes JVMs use, or a local one write, a class archive; those of executors without it start
    without one.  At the end, a JVM that has not ended within
    `end_timeout_s` (default: JVM_END_TIMEOUT_S) is killed.
    """
    _check_standalone_master(settings)
    with tempfile.TemporaryDirectory(prefix="kctl-spark-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch, "spark.log")
        log_settings = Path(scratch, "log4j2.properties")
        log_settings.write_text(_LOG_SETTINGS)
        if settings.is_local:
            os.environ["SPARK_LOCAL_IP"] = LOOPBACK
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        elif "spark.pyspark.python" in settings.conf:
            os.environ["PYSPARK_PYTHON"] = settings.conf["spark.pyspark.python"]
        shares_code = settings.is_local and not is_submitted() and os.environ["PYSPARK_PYTHON"] == sys.executable
        if shares_code:
            _add_to_python_path(Path(kctl.__file__).parent.parent)
        properties = spark_properties(
            settings, name, log_settings=log_settings, class_archive_option=class_archive_option
        )
        if is_submitted():
            # The others are on the command line of spark-submit, where they may have been changed.
            properties = {name: value for name, value in properties.items() if name in {IO_ENCRYPTION, *settings.conf}}
        with contextlib.ExitStack() as stack:
            try:
                spark = _start(properties, log, stack, end_timeout_s, settings, on_note)
            except Exception as error:
                raise _start_failure(settings, error, log) from error
            if not shares_code:
                spark.context.addPyFile(str(build_package(Path(scratch))))
                _check_executors(spark, settings.packages)
            yield spark


def _check_executors(spark: RunningSpark, packages: tuple[str, ...]) -> None:
    """Raise SparkFailed with host, Python and missing packages of an executor on which tasks cannot run.

    One task per core that has registered so far; the tasks of the export check again.
    """
    context = spark.context
    count = min(max(context.defaultParallelism, 1), CHECKED_EXECUTOR_CORES_MAX)

    def check() -> set[str]:
        return set(context.parallelize(range(count), count).map(lambda _: problem(packages)).collect())

    problems = spark.run_job("kctl-preflight", check) - {""}
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise SparkFailed(min(problems) + more)


def _add_to_python_path(directory: Path) -> None:
    """Let the Python processes of a local Spark import kctl as this process does, with the compiled record walk."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(directory) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(directory), *paths]))


def _check_standalone_master(settings: SparkSettings) -> None:
    """Raise SparkFailed if no standalone master accepts a connection; Spark itself would try for over a minute."""
    if reasons := _unreachable_masters(settings, MASTER_CONNECT_TIMEOUT_S):
        raise SparkFailed(f"cannot reach the Spark master {settings.master} ({'; '.join(reasons)})")


def _unreachable_masters(settings: SparkSettings, timeout_s: float) -> list[str]:
    """Return why each of the standalone masters cannot be reached; empty if one of them can be, or there is none."""
    reasons = []
    for host, port in settings.standalone_addresses:
        try:
            socket.create_connection((host, port), timeout_s).close()
        except OSError as error:
            reasons.append(f"{host}:{port}: {(error.strerror or str(error)).lower()}")
        else:
            return []
    return reasons


def _start(
    properties: Mapping[str, str],
    log: Path,
    stack: contextlib.ExitStack,
    end_timeout_s: float | None,
    settings: SparkSettings,
    on_note: Callable[[str], None],
) -> RunningSpark:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - half a second that only exports pay

    conf = SparkConf(loadDefaults=False).setAll(list(properties.items()))
    gateway = _launch_jvm(conf, log)
    stack.callback(_end_jvm, gateway, JVM_END_TIMEOUT_S if end_timeout_s is None else end_timeout_s)
    if is_submitted():
        given = SparkConf(_jvm=gateway.jvm)
        absent = [(name, value) for name, value in properties.items() if not given.contains(name)]
        conf = SparkConf(loadDefaults=False).setAll(absent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark warns about the version of pandas, which is not used here
        try:
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:
            if death := _death(gateway.proc, error):
                raise SparkFailed(death) from error
            raise
    stack.callback(_stop, context)
    return RunningSpark(context, gateway.proc, log, settings, on_note)


def _stop(context: SparkContext) -> None:
    """Stop the application, unless the JVM has ended."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.stop()


def silence_py4j() -> None:
    """Drop the log lines of py4j: it logs lost connections with a traceback, and raises them as well."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # It also uses the root logger.
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _launch_jvm(conf: SparkConf, log: Path) -> Any:
    """Return a JVM that listens to this process.

    PySpark's own wait cannot be interrupted safely: it would lose the JVM, which then waits for ever.  So it
    waits in a thread, where no signal arrives, and an interrupt ends the JVM as soon as it is known.
    """
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - see above

    silence_py4j()
    with log.open("ab") as output, ThreadPoolExecutor(max_workers=1) as thread:
        launch = thread.submit(launch_gateway, conf=conf, popen_kwargs={"stdout": output, "stderr": output})
        try:
            return launch.result()
        except BaseException:
            with contextlib.suppress(Exception):
                _end_jvm(launch.result(), JVM_END_TIMEOUT_S)
            raise


def _end_jvm(gateway: Any, timeout_s: float) -> None:
    """Let the JVM end; it does when its standard input does, after it has removed its own scratch folders.

    The JVM of spark-submit ends after this program.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - see above

    # PySpark would use the ended JVM for the next start.
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if gateway.proc is None:
        gateway.close()  # of this connection only: the next round of --follow connects to the same JVM
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


def _start_failure(settings: SparkSettings, error: Exception, log: Path) -> KctlError:
    output = log.read_text(errors="replace") if log.exists() else ""
    if "UnsupportedClassVersionError" in output:
        return SparkMissing("this Java is too old for Spark: it needs Java 17 or newer (see JAVA_HOME)")
    if "Could not parse Master URL" in f"{error} {output}" or "Master must either be" in output:
        return UsageError(f"Spark does not take '{settings.master}' as a master")
    reason = _reason_in(output) if "JAVA_GATEWAY_EXITED" in str(error) else ""
    return SparkFailed(f"Spark did not start: {reason or _message(error)}{_log_note(log)}")


def _log_note(log: Path) -> str:
    """Return where the log of the JVM is kept; with spark-submit it is in the output of the driver."""
    return "" if is_submitted() else f"; its log: {_keep(log)}"


def _reason_in(output: str) -> str:
    """Return the reason of a JVM's end in its output: an exception, or the first line that is not a warning or a stack
    frame.

    Before the exception there may be a report about Java packages.
    """
    lines = [line for line in output.splitlines() if line.strip() and not _NO_REASON.match(line)]
    return next((line for line in lines if line.startswith(_REASON)), lines[0] if lines else "")


def _death(process: subprocess.Popen[bytes] | None, error: Exception) -> str:
    """Return how the JVM ended, if `error` was raised for this reason, else empty.

    PySpark only reports that the connection is lost.
    """
    if process is None or ("Py4J" not in type(error).__name__ and not isinstance(error, (OSError, EOFError))):
        return ""
    try:
        status = process.wait(timeout=JVM_DEATH_TIMEOUT_S if _is_silent(error) else 0)
    except subprocess.TimeoutExpired:
        return ""
    if status < 0:
        return f"Spark's Java process was killed by {signal.Signals(-status).name} (out of memory, perhaps)"
    return f"Spark's Java process ended with status {status}"


def _is_silent(error: Exception) -> bool:
    """Return whether the error is a missing response of the JVM, not an error returned by it."""
    return "Py4JJavaError" not in type(error).__name__


def spark_properties(
    settings: SparkSettings, name: str = APP_NAME, *, log_settings: Path | None = None, class_archive_option: str = ""
) -> dict[str, str]:
    """Return the Spark properties of an application.

    `log_settings` is a file for the JVM of the driver, if this process starts it.
    """
    chosen = {"spark.master": settings.master, "spark.app.name": name}
    if settings.has_secrets:
        # Without it, the tasks pass through a temporary file of the driver.
        chosen[IO_ENCRYPTION] = "true"
    java_options = [] if log_settings is None else [f"-Dlog4j2.configurationFile=file:{log_settings}"]
    if not settings.is_cluster_mode:
        chosen |= {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if found := _LOCAL.match(settings.master):
        threads, attempts = found.groups()
        chosen["spark.master"] = f"local[{threads or 1},{attempts or LOCAL_ATTEMPTS}]"
        chosen |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    else:
        # Not spark.executor.extraJavaOptions, which the configuration of a cluster may have.
        chosen["spark.executor.defaultJavaOptions"] = " ".join(filter(None, [JVM_FLAGS, class_archive_option]))
    if not settings.is_cluster_mode:
        java_options += [JVM_FLAGS, class_archive_option]
    if options := " ".join(filter(None, java_options)):
        chosen["spark.driver.extraJavaOptions"] = options
    return {**chosen, **settings.conf}


def _keep(log: Path) -> Path:
    """Copy the log out of the temporary folder, and return its path."""
    descriptor, kept = tempfile.mkstemp(prefix="kctl-spark-", suffix=".log")
    os.close(descriptor)
    if log.exists():
        shutil.copyfile(log, kept)
    return Path(kept)


def _message(error: Exception) -> str:
    """Return the message of a Java or Python error without stack traces.

    An exception of a Python worker is wrapped in a Java exception; its message is the first line after Traceback that
    is not indented.  The exception of a task names its executor, whose host comes first in the result.
    """
    text = str(error)
    host = ""
    if task := _LOST_TASK.search(text):
        host, text = f"on host {task[1]}: ", text[task.end() :]
    _, traceback, after = text.partition("Traceback (most recent call last):\n")
    lines = [line for line in (after if traceback else text).splitlines() if line.strip()]
    messages = [line.strip() for line in lines if not line.startswith((" ", "\t", "An error occurred while"))]
    return host + (messages or [type(error).__name__])[0].removeprefix(": ")
