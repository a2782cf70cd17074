"""Apache Kafka itself: brokers and command-line tools of any version, from the jars on Maven Central.

The jars are fetched by coordinates with Maven, once per version, into the user's cache folder; nothing of them enters
the source tree.  A version before 4 is a whole broker with its ZooKeeper, and before 1 only the clients; from 4 on the
tools stand by themselves, and a broker is its own controller (KRaft).

`python -m tests.peers.apache_kafka` fetches all versions that the tests use, and makes class archives of those that
they start often.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.peers import java, kafka_tools, probe
from tests.peers.cache import cache_folder
from tests.peers.kafka_tools import KafkaTools
from tests.peers.process import Process

OLDEST_JUDGE = "2.8.2"
LAST_WITH_ZOOKEEPER = "3.9.1"
NEWEST = "4.4.0"
OLDEST_BROKER = "0.11.0.3"
"""The oldest version that commands support."""
OLD_CLIENTS = ("0.9.0.1", "0.10.0.1", "0.10.2.2")
"""Before message format 2; the last but one is the first with format 1, the last the first with whole batches."""
TOOLS_FOR_NEWEST = "4.3.1"
NEWEST_BROKER = "4.3.1"
"""The last version whose artifacts are complete."""
LAST_MAJOR_WITH_ZOOKEEPER = 3

DOWNLOAD_TIMEOUT_S = 900
ICEBERG_VERSION = "1.11.0"
JUNIT_VERSION = "1.11.4"
BROKER_START_TIMEOUT_S = 90

_TOPICS = "--bootstrap-server {bootstrap} --create --topic orders"
_RECORDS = "--bootstrap-server {bootstrap} --topic orders --max-messages 1"
_TOOLS = (
    f"org.apache.kafka.tools.VerifiableProducer {_RECORDS}",
    f"org.apache.kafka.tools.VerifiableConsumer {_RECORDS} --group-id readers --reset-policy earliest",
    "kafka.tools.DumpLogSegments --files {log} --print-data-log",
)
WITH_OWN_JVM = (".java", ".VerifiableProducer", ".VerifiableConsumer", ".ConsoleConsumer")
"""How the names of programs end that run in a JVM of their own: those in source files of these tests, tools that finish
their work when the JVM ends, and one that counts records in a static field.
"""
TOOLS_TO_ARCHIVE = {
    OLDEST_JUDGE: (f"kafka.admin.TopicCommand {_TOPICS}", *_TOOLS),
    LAST_WITH_ZOOKEEPER: (f"org.apache.kafka.tools.TopicCommand {_TOPICS}", *_TOOLS),
    NEWEST_BROKER: (
        f"org.apache.kafka.tools.TopicCommand {_TOPICS}",
        *_TOOLS[:-1],
        "org.apache.kafka.tools.DumpLogSegments --files {log} --print-data-log",
    ),
}
"""Tools whose classes are archived beside those of the broker, with arguments for a short run."""

SINGLE_BROKER_PROPERTIES = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.retry.backoff.ms": "100",  # of three attempts, because no other broker can take over
    "log.cleaner.dedupe.buffer.size": "20000000",
}

KRAFT_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "0",
    "controller.listener.names": "CONTROLLER",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Members of groups are notified of changes by heartbeats.
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    # Members that were killed are expired soon.
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "200",
}
CLUSTER_ID = "a2N0bC10ZXN0cy1rcmFmdA"

HANGING_IS_ALLOWED = {"transaction.partition.verification.enable": "false"}
"""For tests that write into transactions that were never begun: since 3.6 brokers would query the coordinator first."""

PATIENT_QUOTAS = {
    "replication.quota.window.size.seconds": "60",
    "alter.log.dirs.replication.quota.window.size.seconds": "60",
}
"""For tests that look at a throttled move while it is under way.  A first piece of a megabyte always goes through; with
windows of a second it is forgotten after eleven, and the next one goes."""

LOG4J = """\
log4j.rootLogger=%(level)s, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%%d{ISO8601} %%p %%m (%%c)%%n
"""


def why_not() -> str | None:
    """The reason why Apache Kafka cannot run on this machine, for a skipped test; None if it can."""
    for program, package in (("java", "a Java 17 runtime"), ("mvn", "Maven")):
        if shutil.which(program) is None:
            return f"{program} is not on the PATH: install {package}"
    return None


def jars(version: str) -> Path:
    """The folder with Kafka's jars of that version and all they need, fetched if it is not there yet.

    Raises CalledProcessError with Maven's words when they cannot be had.
    """
    return _fetched(cache_folder() / f"apache-kafka-{version}", _artifacts(version))


def spark_connector_jars(version: str) -> list[Path]:
    """The jars of Spark's connector for Kafka and of what it needs beside Spark.  Raises as `jars` does."""
    connector = {"org.apache.spark:spark-sql-kafka-0-10_2.13": version}
    return sorted(_fetched(cache_folder() / f"spark-connector-{version}", connector).glob("*.jar"))


def iceberg_rest_jars() -> Path:
    """The jars of Iceberg's REST catalogue, which is among its tests, and of what it needs.  Raises as `jars` does."""
    artifacts = {
        "org.apache.iceberg:iceberg-core": ICEBERG_VERSION,
        "org.apache.iceberg:iceberg-core@tests": ICEBERG_VERSION,
        "org.eclipse.jetty.ee10:jetty-ee10-servlet": "12.0.34",
        "org.xerial:sqlite-jdbc": "3.47.1.0",
        "org.slf4j:slf4j-nop": "2.0.17",
    }
    return _fetched(cache_folder() / f"iceberg-rest-{ICEBERG_VERSION}", artifacts)


def junit_jars() -> Path:
    """The folder with the program that runs tests of JUnit 5, fetched if it is not there yet."""
    console = {"org.junit.platform:junit-platform-console-standalone": JUNIT_VERSION}
    return _fetched(cache_folder() / f"junit-{JUNIT_VERSION}", console)


def _broker_jars(version: str) -> Path:
    """The folder for a broker, which is a separate one before version 1 and from 4 on."""
    folder = cache_folder() / f"apache-kafka-broker-{version}"
    if _major(version) < 1:
        # Not part of Java since 11.
        return _fetched(folder, {"kafka_2.12": version, "javax.xml.bind:jaxb-api": "2.3.1"})
    return _fetched(folder, {"kafka_2.13": version}) if _is_kraft(version) else jars(version)


def _scala_artifact(version: str) -> str:
    """The name of the broker's artifact: for Scala 2.13 since 2.4."""
    major, minor = map(int, version.split(".")[:2])
    return "kafka_2.13" if (major, minor) >= (2, 4) else "kafka_2.12"


def _fetched(folder: Path, artifacts: Mapping[str, str]) -> Path:
    if not folder.is_dir():
        _fetch(artifacts, folder)
    return folder


def _fetch(artifacts: Mapping[str, str], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(_pom(artifacts))
        fetched = Path(scratch) / "jars"
        subprocess.run(
            [
                *("mvn", "-B", "-ntp", "-q", "-f", pom, "dependency:copy-dependencies"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={fetched}"),
            ],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
        # Renamed when complete; if another process was faster, its folder is used.
        with contextlib.suppress(OSError):
            fetched.rename(folder)


def _pom(artifacts: Mapping[str, str]) -> str:
    """Artifacts are those of Kafka, or have their group in front: `group:artifact`, and maybe `@classifier` behind."""
    dependencies = ""
    for name, version in artifacts.items():
        group, _, rest = name.rpartition(":")
        artifact, _, classifier = rest.partition("@")
        dependencies += (
            f"<dependency><groupId>{group or 'org.apache.kafka'}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version>"
            + (f"<classifier>{classifier}</classifier>" if classifier else "")
            + "</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kctl.tests</groupId><artifactId>apache-kafka</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _artifacts(version: str) -> dict[str, str]:
    if _major(version) < 1:  # Only for their clients.
        return {"kafka-clients": version}
    if not _is_kraft(version):
        # The ZooKeeper client of 2.0 to 2.3, 3.4.13 and 3.4.14, does not connect on Java 14 or newer (ZOOKEEPER-3779).
        older = {"org.apache.zookeeper:zookeeper": "3.4.10"} if version.startswith(("2.0", "2.1", "2.2", "2.3")) else {}
        return {_scala_artifact(version): version, "kafka-tools": version, **older}
    # The clients are what matters; the tools around them may be of the last version that was published beside them.
    return {"kafka-clients": version, "kafka-tools": TOOLS_FOR_NEWEST}


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _is_kraft(version: str) -> bool:
    return _major(version) > LAST_MAJOR_WITH_ZOOKEEPER


def java_command(version: str, main_class: str, args: Sequence[str | Path], *, log_level: str = "ERROR") -> list[str]:
    """The command line that runs a class of that Kafka version, or the program in a Java source file of these tests."""
    return _java(jars(version), main_class, args, log_level)


def streams_command(program: Path, args: Sequence[str | Path]) -> list[str]:
    """The command line that runs an application of Kafka Streams in a Java source file of these tests."""
    folder = _fetched(cache_folder() / f"kafka-streams-{NEWEST_BROKER}", {"kafka-streams": NEWEST_BROKER})
    return _java(folder, str(program), args, "ERROR")


def mirror_maker_command(version: str, settings: Path) -> list[str]:
    """The command line that runs MirrorMaker 2 (connect-mirror-maker) with these properties."""
    folder = _fetched(
        cache_folder() / f"apache-kafka-mirror-{version}",
        {"connect-mirror": version, "connect-runtime": version, "org.slf4j:slf4j-simple": "1.7.36"},
    )
    flags = ("-Xmx512m", "-XX:+UseSerialGC", *java.UTF_8)
    return _java(folder, "org.apache.kafka.connect.mirror.MirrorMaker", [settings], "ERROR", flags)


def broker_command(version: str, program: str) -> list[str]:
    """The command line that runs the program in a Java source file with the classes of a broker of that version."""
    return _java(_broker_jars(version), program, [], "ERROR")


def _java(
    folder: Path,
    main_class: str,
    args: Sequence[str | Path],
    log_level: str,
    flags: Sequence[str] = java.JVM_FLAGS,
    plugin: Path | None = None,
) -> list[str]:
    settings = folder.with_name(f"log4j-{log_level.lower()}.properties")
    if not settings.exists():
        settings.write_text(LOG4J % {"level": log_level})
    class_path = f"{folder}/*"
    if main_class.endswith(".java"):
        plugin = Path(main_class)
        main_class = plugin.stem
    if plugin is not None:
        class_path += f":{java.compiled(plugin, folder)}"
    flags = (*flags, *java.archive_flags(folder), f"-Dlog4j.configuration=file:{settings}")
    return ["java", *flags, "-cp", class_path, main_class, *map(str, args)]


def run_java_tool(
    version: str, main_class: str, args: Sequence[str | Path], *, timeout_s: float = 180, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's command-line tools; its output is in stdout and stderr.

    Most run in a JVM that stays; see `WITH_OWN_JVM`.
    """
    if main_class.endswith(WITH_OWN_JVM):
        return _run(java_command(version, main_class, args), timeout_s=timeout_s, stdin=stdin)
    return _run_tool(jars(version), main_class, args, timeout_s)


def run_broker_tool(
    version: str, main_class: str, args: Sequence[str | Path], *, timeout_s: float = 180
) -> subprocess.CompletedProcess[str]:
    """Runs a tool that is part of the broker from version 4 on, such as kafka.admin.ConfigCommand."""
    return _run_tool(_broker_jars(version), main_class, args, timeout_s)


def run_java_tools(version: str, commands: Sequence[Sequence[str | Path]]) -> list[tuple[str, str]]:
    """Runs tools, each a class and its arguments; returns what each has written to stdout and stderr."""
    return [_outputs(run_java_tool(version, str(tool), args)) for tool, *args in commands]


def run_broker_tools(version: str, commands: Sequence[Sequence[str | Path]]) -> list[tuple[str, str]]:
    """Runs several tools that are part of the broker from version 4 on."""
    return [_outputs(run_broker_tool(version, str(tool), args)) for tool, *args in commands]


def _outputs(ran: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    return ran.stdout, ran.stderr


def _run_tool(
    folder: Path, main_class: str, args: Sequence[str | Path], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    if folder not in _tools or not _tools[folder].is_running:
        _tools[folder] = KafkaTools(_java(folder, str(kafka_tools.PROGRAM), [], "ERROR"))
    return _tools[folder].run([main_class, *map(str, args)], timeout_s)


_tools: dict[Path, KafkaTools] = {}
"""For each folder with jars, the JVM that runs its tools."""


def _run(command: list[str], *, timeout_s: float, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, input=stdin or "", capture_output=True, text=True, timeout=timeout_s)


@contextlib.contextmanager
def apache_kafka(
    version: str,
    data_dir: Path,
    *,
    zookeeper: str | None = None,
    port: int | None = None,
    properties: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """One Apache Kafka broker, serving; yields its bootstrap address.

    `zookeeper` is a connect string; without it a ZooKeeper from the same jars is started beside the broker.  From 4 on
    there is none.
    """
    with apache_kafka_process(version, data_dir, zookeeper=zookeeper, port=port, properties=properties) as started:
        yield started[0]


@contextlib.contextmanager
def apache_kafka_process(
    version: str,
    data_dir: Path,
    *,
    zookeeper: str | None = None,
    port: int | None = None,
    properties: Mapping[str, str] | None = None,
    jvm_flags: Sequence[str] = java.JVM_FLAGS,
    plugin: Path | None = None,
) -> Iterator[tuple[str, Process]]:
    """A broker and its process, for tests that kill it or read its output, and for benchmarks.

    `plugin` is the source file of a class that its properties name.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        bootstrap = f"127.0.0.1:{port or probe.free_port()}"
        settings = data_dir / "server.properties"
        jars_of_it = _broker_jars(version)
        if _is_kraft(version):
            settings.write_text(_kraft_properties(bootstrap, data_dir / "logs", properties or {}))
            _format(jars_of_it, settings)
        else:
            connect = zookeeper or stack.enter_context(zookeeper_of(version, data_dir / "zookeeper"))
            settings.write_text(_server_properties(bootstrap, connect, data_dir / "logs", properties or {}))
        command = _java(jars_of_it, "kafka.Kafka", [settings], "INFO", jvm_flags, plugin)
        broker = stack.enter_context(Process(f"Apache Kafka {version}", command, log=data_dir / "kafka.log"))
        broker.wait_until(lambda: probe.has_controller(bootstrap), timeout_s=BROKER_START_TIMEOUT_S)
        yield bootstrap, broker


@contextlib.contextmanager
def formatted_node(version: str, data_dir: Path, properties: Mapping[str, str]) -> Iterator[Process]:
    """A node of a KRaft cluster, formatted and started; `properties` name its id, listeners and quorum."""
    settings = data_dir / "server.properties"
    jars_of_it = _broker_jars(version)
    settings.write_text(_kraft_properties("127.0.0.1:0", data_dir / "logs", properties))
    _format(jars_of_it, settings)
    command = _java(jars_of_it, "kafka.Kafka", [settings], "INFO", java.JVM_FLAGS)
    with Process(f"Apache Kafka {version} in {data_dir.name}", command, log=data_dir / "kafka.log") as node:
        yield node


def format_directories(version: str, settings: Path, cluster_id: str) -> None:
    """Formats the log directories that the properties name, for a node of KRaft."""
    _format(_broker_jars(version), settings, cluster_id)


def launched_node(version: str, settings: Path, *, jvm_flags: Sequence[str] = java.JVM_FLAGS) -> Process:
    """A node of a KRaft cluster on directories that are formatted; `settings` are its properties, beside its log."""
    command = _java(_broker_jars(version), "kafka.Kafka", [settings], "INFO", jvm_flags)
    return Process(f"Apache Kafka {version} of {settings.parent.name}", command, log=settings.with_suffix(".log"))


def _server_properties(bootstrap: str, connect: str, log_dir: Path, more: Mapping[str, str]) -> str:
    properties = {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://{bootstrap}",
        "zookeeper.connect": connect,
        "log.dirs": str(log_dir),
        **SINGLE_BROKER_PROPERTIES,
        **more,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _kraft_properties(bootstrap: str, log_dir: Path, more: Mapping[str, str]) -> str:
    controller = f"127.0.0.1:{probe.free_port()}"
    properties = {
        **KRAFT_PROPERTIES,
        "listeners": f"PLAINTEXT://{bootstrap},CONTROLLER://{controller}",
        "controller.quorum.voters": f"0@{controller}",
        "log.dirs": str(log_dir),
        **SINGLE_BROKER_PROPERTIES,
        **more,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _format(folder: Path, settings: Path, cluster_id: str = CLUSTER_ID) -> None:
    """Kafka 4 requires formatted directories, which also determine its features.  Those that are formatted stay so."""
    arguments = ["format", "--ignore-formatted", "-t", cluster_id, "-c", str(settings)]
    command = _java(folder, "kafka.tools.StorageTool", arguments, "ERROR")
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


@contextlib.contextmanager
def zookeeper_of(version: str, data_dir: Path) -> Iterator[str]:
    data_dir.mkdir(parents=True, exist_ok=True)
    connect = f"127.0.0.1:{probe.free_port()}"
    host, port = probe.address(connect)
    settings = data_dir / "zoo.cfg"
    settings.write_text(
        f"dataDir={data_dir}\nclientPort={port}\nclientPortAddress={host}\nmaxClientCnxns=0\nadmin.enableServer=false\n"
    )
    command = _java(_broker_jars(version), "org.apache.zookeeper.server.ZooKeeperServerMain", [settings], "INFO")
    with Process("Apache ZooKeeper", command, log=data_dir / "zookeeper.log") as server:
        server.wait_until(lambda: probe.accepts(connect), timeout_s=60)
        yield connect


def main() -> int:
    if reason := why_not():
        sys.stderr.write(f"Apache Kafka: {reason}\n")
        return 1
    for version, fetch in (
        *((version, jars) for version in (OLDEST_JUDGE, LAST_WITH_ZOOKEEPER, NEWEST, TOOLS_FOR_NEWEST, *OLD_CLIENTS)),
        (NEWEST_BROKER, _broker_jars),
        (OLDEST_BROKER, _broker_jars),
    ):
        try:
            sys.stderr.write(f"Apache Kafka {version}: {fetch(version)}\n")
        except subprocess.CalledProcessError as error:
            sys.stderr.write(f"Apache Kafka {version}: {error.stdout}{error.stderr}\n")
            return 1
    sys.stderr.write(f"Apache Iceberg {ICEBERG_VERSION}: {iceberg_rest_jars()}\n")
    for version in TOOLS_TO_ARCHIVE:
        _make_archives(version)
    return 0


def _make_archives(version: str) -> None:
    """Archives the classes that a broker, its ZooKeeper and these tools load; without it they start as well."""
    folders = {_broker_jars(version), jars(version)}
    if all(map(java.has_archive, folders)):
        return
    with tempfile.TemporaryDirectory() as scratch:
        lists = Path(scratch) / "lists"
        lists.mkdir()
        command = [sys.executable, "-m", "tests.peers.apache_kafka", "exercise", version, scratch]
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, env=java.recording_environment(lists), timeout=300
            )
            for folder in folders:
                java.make_archive(folder, lists)
        except subprocess.CalledProcessError as error:
            sys.stderr.write(f"Apache Kafka {version}: no class archive: {error.stdout}{error.stderr}\n")
        except subprocess.TimeoutExpired as error:
            sys.stderr.write(f"Apache Kafka {version}: no class archive: {error}\n")


def _exercise(version: str, folder: Path) -> None:
    """Starts a broker and runs each of the tools once."""
    with apache_kafka(version, folder / "broker") as bootstrap:
        log = folder / "broker" / "logs" / "orders-0" / f"{0:020}.log"
        for line in TOOLS_TO_ARCHIVE[version]:
            main_class, *args = line.format(bootstrap=bootstrap, log=log).split()
            ran = _run(java_command(version, main_class, args), timeout_s=180)
            assert ran.returncode == 0, ran.stdout + ran.stderr


if __name__ == "__main__":
    if sys.argv[1:2] == ["exercise"]:
        _exercise(sys.argv[2], Path(sys.argv[3]))
    else:
        sys.exit(main())
