"""Rules for all commands: options anywhere, one document with json, exit statuses, no tracebacks."""

from __future__ import annotations

import array
import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import sysconfig
import termios
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kctl.cli
from kctl import __version__
from kctl.commands.frame.exit_status import ExitStatus, Refused, Terminated
from kctl.commands.frame.help.text import common_options
from kctl.commands.frame.lazy_group import Member
from kctl.commands.frame.options.parameters import flags_of, metavar_of, name_of
from kctl.commands.frame.root import NOUNS, all_commands
from kctl.errors import ApiError, ClusterUnreachable, ConfigError, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.protocol.apis.list_offsets import ListOffsetsRequest
from kctl.protocol.apis.metadata import MetadataRequest
from tests.peers.probe import wait_until
from tests.peers.ran import Ran
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl

ROOT = Path(__file__).parent.parent.parent.parent
PATIENCE_S = 60


def test_version_is_printed_on_stdout(kctl: Kctl) -> None:
    ran = kctl("--version")
    assert (ran.status, ran.out.split(" (")[0].rstrip("\n"), ran.err) == (0, f"kctl {__version__}", "")


@for_rows(
    "build, options, flag, is_named",
    [
        ("pyenv", "'--enable-shared'", "-fprofile-use", True),
        ("a build with it", "'--enable-optimizations' '--with-lto'", "-fprofile-use", False),
        ("Debian, which does not tell", "'--enable-shared'", "", False),
        ("a system without a Makefile", None, None, False),
    ],
)
def test_version_names_a_python_without_profile_guided_optimization(
    kctl: Kctl, monkeypatch: pytest.MonkeyPatch, build: str, options: str | None, flag: str | None, is_named: bool
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_vars", lambda *_: [options, flag])
    assert ("profile-guided" in kctl("--version").out) is is_named, build


@pytest.mark.parametrize("line", ["--help", "help", "-h", "--format json --help"])
def test_requested_help_is_on_stdout(kctl: Kctl, line: str) -> None:
    ran = kctl(line)
    assert (ran.status, ran.err) == (0, "")
    assert len(ran.out.splitlines()) == 15
    assert all(re.search(rf"[ ,]{noun}[,\n]", ran.out) for noun in NOUNS)


@pytest.mark.parametrize("line", ["--help --all", "help --all", "--all -h"])
def test_whole_help_has_nouns_common_options_and_exit_statuses(kctl: Kctl, line: str) -> None:
    text = kctl(line).out
    assert all(f"  {noun} " in text for noun in NOUNS)
    assert all(f"  {int(status)} " in text for status in ExitStatus)
    assert all(f"{max(flags_of(param), key=len)}" in text for param in common_options())


@pytest.mark.parametrize("line", ["", "topics", "--format json topics"])
def test_help_after_an_incomplete_command_line_is_on_stderr_with_status_2(kctl: Kctl, line: str) -> None:
    ran = kctl(line)
    assert (ran.status, ran.out) == (ExitStatus.USAGE, "")
    assert ran.err.startswith("Usage: kctl")


@pytest.mark.parametrize("line", ["help topics create", "topics create --help", "topics create orders --nope --help"])
def test_help_of_a_command_begins_with_examples(kctl: Kctl, line: str) -> None:
    ran = kctl(line)
    assert ran.status == 0
    assert ran.out.index("Examples:") < ran.out.index("Options:") < ran.out.index("kctl --help --all")
    assert "--bootstrap-server HOST" not in ran.out


def test_help_that_is_piped_needs_no_cluster_and_no_rich() -> None:
    code = "import sys; from kctl.cli import main; main(['topics', 'create', '--help']); print(sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    modules = shown.splitlines()[-1]
    assert not any(f"'{heavy}'" in modules for heavy in ("rich", "asyncio", "pydantic"))


@pytest.mark.long
def test_a_broker_without_metrics_loads_neither_their_library_nor_codecs() -> None:
    code = "import sys, kctl.commands.broker.start; print({'prometheus_client', 'cramjam'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert shown == "set()\n"


@pytest.mark.long
def test_commands_about_the_process_of_a_broker_do_not_import_the_broker() -> None:
    names = ("broker.start", "broker.running", "broker.zookeeper", "cluster.development")
    imports = "".join(f"import kctl.commands.{name}; " for name in names)
    code = f"import sys; {imports}print(*[name for name in sys.modules if name.startswith('kctl.')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    modules = shown.split()
    assert not {"kctl.server.broker", "kctl.server.requests"} & set(modules)
    assert len(modules) < 200  # 545 with the broker


@pytest.mark.long
@pytest.mark.parametrize("format_", ["plain", "json", "jsonl"])
def test_output_for_programs_needs_no_rich(cluster: FakeCluster, format_: str) -> None:
    cluster.create("orders")
    line = f"main(['topics', 'list', '--format', '{format_}'])"
    code = f"import sys; from kctl.cli import main; {line}; print('rich' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "orders" in shown
    assert shown.splitlines()[-1] == "False"


@for_rows("line, complaint", [
        ("topcis list", "no such command: topcis.  Did you mean 'kctl topics list'?"),
        ("topics lits", "no such verb of kctl topics: lits.  Did you mean 'kctl topics list'?"),
        ("--nope", "no such option: --nope."),
        ("topics list --nope", "no such option: --nope."),
        ("topics list -x", "no such option: -x.  Try"),
        ("topics describe -x", "no such option: -x.  A name that begins with - is given after --."),
        ("topics create", "missing argument 'TOPIC'."),
        ("reassign plan", "Choose from: drain, add, replication-factor, rebalance."),
        ("topics create a --partitions x", "--partitions is a whole number from 1 to 2147483647, not 'x'"),
        ("topics list --format xml", "'xml' is not one of table, plain, json, jsonl, yaml, csv."),
        ("nope --help", "no such command: nope."),
        ("help nope", "no such command: nope."),
        ("groups backlog --help", "no such verb of kctl groups: backlog."),
        ("groups backlog -h", "no such verb of kctl groups: backlog."),
        ("help groups backlog", "no such verb of kctl groups: backlog."),
        ("groups --nope --help", "no such option of kctl groups: --nope."),
        ("topics list --timeout 0", "--timeout must be greater than 0"),
        ("topics list --timeout soon", "--timeout: 'soon' is not a valid duration"),
        ("topics list --bootstrap-server host:port", "'host:port' is not an address"),
        ("topics list -b user:pa,ss@host:9092", "'host:9092' is given with a user or a password (@); write HOST:PORT"),
        ("broker zookeeper-get / --zookeeper user:pa,ss@host:1/x", "--zookeeper host:1/x: 'host:1' is given with"),
        ("topics list --command-config /does/not/exist", "cannot read /does/not/exist"),
        ("topics alter orders", "nothing to alter"),
        ("topics offsets orders --time yesterday", "--time takes latest, earliest, max-timestamp"),
        ("consume orders --from begin", "--from: 'begin' is not a valid offset; use start, end, N, +N, -N or @TIME"),
        ("consume orders --from -1h", "--from: '-1h' is not a valid offset; for the time, use @-1h"),
        ("consume orders --until 10:05", "--until: '10:05' is not a valid offset; for the time, use @10:05"),
    ])  # fmt: skip
def test_mistake_is_one_line_on_stderr_with_status_2(kctl: Kctl, line: str, complaint: str) -> None:
    ran = kctl(line)
    assert (ran.status, ran.out) == (ExitStatus.USAGE, "")
    assert ran.err.count("\n") == 1
    assert complaint in ran.err
    under_json = kctl(f"{line} --format json" if "--format" not in line else line.replace("xml", "json --nope"))
    assert under_json.status == ExitStatus.USAGE
    assert under_json.document["error"]["code"] == "USAGE"


@pytest.mark.parametrize(
    "line",
    [
        "topics list --format json",
        "--format json topics list",
        "topics --format=json list",
        "--format=json topics list",
    ],
)
def test_common_options_stand_anywhere(kctl: Kctl, cluster: FakeCluster, line: str) -> None:
    assert kctl(line) == Ran(0, "[]\n", "")


def test_server_comes_from_option_then_environment_then_file(
    kctl: Kctl, cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(f"bootstrap.servers={cluster.bootstrap}\n")
    assert kctl(f"topics list --bootstrap-server {cluster.bootstrap} --command-config {properties}").status == 0
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", "127.0.0.1:1")
    assert kctl(f"topics list --command-config {properties}").status == ExitStatus.UNREACHABLE
    monkeypatch.delenv("KCTL_BOOTSTRAP_SERVER")
    assert kctl(f"topics list --command-config {properties}").status == 0


def test_unreachable_cluster_is_status_4_and_names_the_address(kctl: Kctl) -> None:
    ran = kctl("topics list --bootstrap-server 127.0.0.1:1 --format json")
    assert ran.status == ExitStatus.UNREACHABLE
    assert ran.document["error"] == {
        "code": "CLUSTER_UNREACHABLE",
        "message": "cannot reach 127.0.0.1:1: connection refused",
        "retryable": True,
    }


@pytest.mark.long
def test_silent_cluster_is_status_4_after_the_timeout(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.intercept(MetadataRequest, lambda _: b"")
    ran = kctl("topics list --timeout 1s")
    assert ran.status == ExitStatus.UNREACHABLE
    assert "no response to Metadata within 1000 ms" in ran.err


@for_rows(
    "error, status",
    [
        (ApiError(ErrorCode.INVALID_CONFIG), 1),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT), 4),
        (ApiError(ErrorCode.NETWORK_EXCEPTION), 4),
        (ClusterUnreachable("x"), 4),
        (TimeoutError(), 4),
        (UsageError("x"), 2),
        (ConfigError("a", "b", "c"), 2),
        (Refused("x"), 5),
        (KeyboardInterrupt(), 130),
        (Terminated(), 143),
        (FileNotFoundError(2, "No such file", "x"), 1),
        (ValueError("a bug"), 1),
    ],
)
def test_every_exception_has_its_exit_status(error: BaseException, status: int) -> None:
    assert kctl.cli.exit_status_of(error) == status


def test_bug_is_one_line_without_debug(kctl: Kctl, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise ZeroDivisionError("what now")

    monkeypatch.setattr("kctl.commands.topics.list.topic_row", explode)
    cluster.create("orders")
    ran = kctl("topics list --format json")
    assert (ran.status, ran.document["error"]["code"]) == (1, "INTERNAL_ERROR")
    assert "ZeroDivisionError: what now" in ran.err
    assert "Traceback" not in ran.err
    assert "Traceback" in kctl("topics list --debug").err


def run_process(*words: str, **rest: Any) -> subprocess.Popen[str]:
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-m", "kctl", *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}, **rest,
    )  # fmt: skip
    return process


@pytest.mark.long
def test_reader_that_leaves_early_is_no_error(cluster: FakeCluster) -> None:
    for number in range(3_000):
        cluster.create(f"topic-{number:04}-{'x' * 50}")
    process = run_process("topics", "list")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(PATIENCE_S) == 0


@pytest.mark.long
def test_closed_streams_are_no_traceback(cluster: FakeCluster) -> None:
    cluster.create("orders")
    for line, redirection, status in (
        ("topics list", ">&-", 1),
        ("topics list", "2>&-", 0),
        ("topics list", "<&-", 0),
        ("topics list", "> /dev/full", 1),
        ("topics create more >&- --partitions 1", "", 1),
        ("produce orders --quiet", "<&-", 1),
        ("produce orders --quiet", "</dev/null", 0),
    ):
        command = f"{sys.executable} -m kctl {line} {redirection}"
        ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (ran.returncode, "Traceback" in ran.stderr) == (status, False), (line, redirection, ran)
        assert status == 0 or re.search("cannot (write to stdout|read the input): ", ran.stderr), ran


@pytest.mark.long
def test_interrupt_ends_consume_while_its_output_waits(kctl: Kctl, cluster: FakeCluster, tmp_path: Path) -> None:
    """The reader of a pipe, or the terminal, has stopped reading, and the rest of the output is discarded."""
    cluster.create("orders")
    (tmp_path / "lines").write_text(f"{'x' * 100}\n" * 20_000)
    assert kctl(f"produce orders --quiet --file {tmp_path / 'lines'}").status == 0
    for options in ("--format table", "--format jsonl", "-f %v"):
        reader, writer = os.pipe()
        terminal, stdout = pty.openpty()
        for end, output in ((reader, writer), (terminal, stdout)):
            process = subprocess.Popen(
                [sys.executable, "-m", "kctl", "consume", "orders", "--follow", *options.split()],
                cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            os.close(output)
            wait_until(partial(_is_full, end), what=f"{options}: output that is not read", timeout_s=PATIENCE_S)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, err) == (130, ""), options
            os.close(end)


def _is_full(reader: int) -> bool:
    """Whether a pipe or terminal has as many bytes as it takes, as far as its reader can tell."""
    size = array.array("i", [0])
    fcntl.ioctl(reader, termios.FIONREAD, size)
    return size[0] >= 4_000


@pytest.mark.long
@pytest.mark.parametrize("options", ["--format plain", "--format json"])
def test_consume_that_waits_for_records_ends_with_its_reader(kctl: Kctl, cluster: FakeCluster, options: str) -> None:
    cluster.create("orders")
    arrived = _silence(cluster, after=3)
    process = run_process("consume", "orders", "--follow", *options.split())
    arrived()
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize("line", ["--format", "topics list --format", "--bootstrap-server"])
def test_option_without_its_value_is_named(kctl: Kctl, line: str) -> None:
    ran = kctl(line)
    assert ran.status == ExitStatus.USAGE
    assert ran.err.count("\n") == 1
    assert line.rsplit(maxsplit=1)[-1] in ran.err


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("words", [("consume", "orders", "--follow"), ("topics", "list")])
def test_signals_end_without_noise(
    cluster: FakeCluster, words: tuple[str, ...], number: signal.Signals, status: int
) -> None:
    cluster.create("orders")
    arrived = _silence(cluster, after=3 if words[0] == "consume" else 0)
    process = run_process(*words)
    arrived()
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (status, "", "")


def _silence(cluster: FakeCluster, *, after: int) -> Callable[[], None]:
    """Answers so many requests for metadata or records, then no more; the returned function waits for that."""
    import threading  # noqa: PLC0415 - only here

    from kctl.protocol.apis.fetch import FetchRequest  # noqa: PLC0415 - only here

    seen = threading.Event()

    def hush(_: object) -> bytes:
        seen.set()
        return b""

    if after:
        cluster.intercept(FetchRequest, hush)
    else:
        cluster.intercept(MetadataRequest, hush)

    def wait() -> None:
        assert seen.wait(PATIENCE_S)

    return wait


def test_module_that_is_missing_is_one_line(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NOUNS, "nothing", Member("kctl.commands.nothing", "Nothing."))
    ran = kctl("nothing at all --format json")
    assert ran.status == 1
    assert json.loads(ran.out)["error"]["code"] == "NOT_BUILT"


@pytest.mark.long
def test_change_on_a_full_disk_shows_what_was_done(cluster: FakeCluster) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "kctl", "topics", "create", "orders", "--yes"]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 1
    done, error = ran.stderr.splitlines()
    assert done.startswith("kctl: warning: not completed: there are responses to 1 CreateTopics request (orders)")
    assert error == "kctl: cannot write to stdout: No space left on device"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("--help", 1, "kctl: cannot write to stdout: No space left on device\n"),
        pytest.param(
            "completion bash", 1, "kctl: cannot write to stdout: No space left on device\n", marks=pytest.mark.long
        ),
        ("topics list --format json --bootstrap-server 127.0.0.1:1", 4, "kctl: cannot reach 127.0.0.1:1: "),
        ("topics list --format yaml --nope", 2, "kctl: no such option: --nope."),
    ],
)
def test_full_disk_is_an_error_without_traceback(line: str, status: int, message: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "kctl", *line.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert ran.returncode == status
    assert ran.stderr.startswith(message)
    assert ran.stderr.count("\n") == 1


def test_errors_in_sizes_durations_times_and_offsets_name_the_option() -> None:
    """Every option and argument with such a value, of every command."""
    kinds = {"SIZE", "BYTES_PER_S", "DURATION", "[DURATION]", "TIME", "OFFSET", "N,N-N"}
    found = set()
    for verbs in all_commands().values():
        for command in verbs.values():
            for param in command.params:
                if metavar_of(param) not in kinds:
                    continue
                found.add(metavar_of(param))
                with pytest.raises(UsageError, match=f"^{re.escape(name_of(param))}: '10XB' is not a "):
                    param.type.convert("10XB", param, None)
    assert found == kinds


@pytest.mark.parametrize(
    ("line", "properties", "complaint"),
    [
        ("topics list", "acks=2", None),
        ("topics list", "retry.backoff.ms=soon", "retry.backoff.ms=soon: "),
        ("produce orders", "acks=2", "acks=2: "),
        ("produce orders --file /dev/null", "isolation.level=none", None),
        ("consume orders", "isolation.level=none", "isolation.level=none: "),
        ("consume orders", "acks=2", None),
        ("copy orders other", "linger.ms=-1", "linger.ms=-1: "),
        ("copy orders other", "max.poll.records=0", "max.poll.records=0: "),
    ],
)
def test_properties_of_the_clients_of_a_command_are_checked(
    kctl: Kctl, cluster: FakeCluster, tmp_path: Path, line: str, properties: str, complaint: str | None
) -> None:
    cluster.create("orders")
    cluster.create("other")
    file = tmp_path / "client.properties"
    file.write_text(properties)
    ran = kctl(f"{line} --quiet --command-config {file}")
    if complaint is None:
        assert ran.status == ExitStatus.DONE, ran.err
    else:
        assert (ran.status, complaint in ran.err) == (ExitStatus.USAGE, True), ran.err
        assert not cluster.requested(MetadataRequest)


def test_interrupt_while_modules_are_imported_writes_no_traceback() -> None:
    program = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "kctl.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from kctl.__main__ import main
main()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (-signal.SIGINT, b"")


@pytest.mark.long
def test_blank_lines_of_jsonl_are_skipped_and_times_of_any_year_are_kept(cluster: FakeCluster, kctl: Kctl) -> None:
    cluster.create("orders")
    times = [-86_400_000, -5, 253_402_300_800_001, 1_700_000_000_000]
    lines = "".join(f'{{"value": "v", "timestamp_ms": {time_ms}}}\n\n  \r\n' for time_ms in times)
    command = [sys.executable, "-m", "kctl", "produce", "orders", "--input", "jsonl"]
    environment = os.environ | {"KCTL_BOOTSTRAP_SERVER": cluster.bootstrap}
    for text, status, message in (
        (lines, 0, f"{len(times)} records"),
        ('\n{"value": "a"}\n\n{"value"\n', 2, "standard input line 4: "),
    ):
        ran = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, cwd=ROOT, env=environment
        )
        assert (ran.returncode, message in ran.stderr) == (status, True), ran
    assert [record.timestamp for record in cluster.records_of("orders", 0)][: len(times)] == times
    rows = [json.loads(line) for line in kctl("consume orders --format jsonl").out.splitlines()]
    assert [row["timestamp_ms"] for row in rows][: len(times)] == times
    assert [row["time"] for row in rows][:3] == [
        "1969-12-31T00:00:00.000Z",
        "1969-12-31T23:59:59.995Z",
        "+10000-01-01T00:00:00.001Z",
    ]


def test_special_offsets_have_names_and_the_numbers_of_kafka(cluster: FakeCluster, kctl: Kctl) -> None:
    cluster.create("orders")
    for words, timestamp in (
        (("latest", "end", "-1"), -1),
        (("earliest", "start", "-2"), -2),
        (("max-timestamp", "-3"), -3),
        (("earliest-local", "-4"), -4),
        (("latest-tiered", "-5"), -5),
        (("1700000000000", "@1700000000000"), 1_700_000_000_000),
    ):
        for word in words:
            kctl(f"topics offsets orders --time {word}")
            (_, request) = cluster.requested(ListOffsetsRequest)[-1]
            assert request.topics[0].partitions[0].timestamp == timestamp, word
    with FakeCluster(versions={2: (0, 6)}) as older:
        older.create("orders")
        ran = kctl(f"topics offsets orders --time -3 --bootstrap-server {older.bootstrap}")
        assert (ran.status, "max-timestamp" in ran.err, "Kafka 3.0" in ran.err) == (1, True, True), ran


def test_group_with_the_empty_name_is_selected_by_an_option(cluster: FakeCluster, kctl: Kctl) -> None:
    cluster.create("orders")
    cluster.groups[""] = FakeGroup(offsets={TopicPartition("orders", 0): 0})
    (described,) = json.loads(kctl("groups describe --empty-name --format json").out)
    assert described["group"] == ""
    assert kctl("groups delete --empty-name --yes --no-backup").status == 0
    assert "" not in cluster.groups
