"""Commands in a shell: pipes that are closed early, no terminal, NO_COLOR, narrow terminals, SIGINT and SIGTERM.

The tables cover the catalogue: a test fails for a new command that is in none of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from kctl.cli import main
from kctl.client.connections.guard import is_change
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.query import QueryCommand
from kctl.commands.frame.root import all_commands
from kctl.protocol.codec import decode
from kctl.protocol.headers import decode_request_header
from kctl.protocol.registry import api
from tests.integration.cli.test_golden_output import GOLDEN, LINES, Seeded, Terminal, seeded_broker
from tests.peers import probe
from tests.rows import for_rows

ROOT = Path(__file__).parents[3]
CHANGES = [
    "topics create fresh --partitions 1",
    "topics alter orders --partitions 5",
    "topics delete orders --yes",
    "produce orders --input jsonl --file {records}",
    "groups delete billing --yes --no-backup",
    "groups delete-offsets billing --topic orders --yes --no-backup",
    "groups reset-offsets billing --topic orders --to-earliest --yes --no-backup",
    "groups import {offsets} --yes --no-backup",
    "groups restore billing --backup {offsets} --yes --no-backup",
    "transactions abort orders:0 --producer-id 4000 --producer-epoch 7 --coordinator-epoch 3 --yes --force",
    "transactions terminate billing --fence --yes",
    "groups reset-streams billing --input-topic orders --yes",
    "records delete orders:0 --before-offset 1 --yes",
    "perf produce events --num-records 10 --client kctl --create --yes",
    "perf latency events --num-records 10 --client kctl --yes",
    "elect --unclean --topic orders --partition 0 --yes",
    "configs alter topic orders --set retention.ms=7",
    "apply {plan} --yes",
    "acls add --allow User:bob --operation read --topic orders",
    "acls remove --allow User:alice --topic orders --yes",
    "acls apply {acls} --yes",
    "quotas alter --user bob --consumer-rate 2MB --yes",
    "users create bob --password-file {password}",
    "users alter alice --password-file {password}",
    "users delete alice --yes",
    "tokens create",
    "loggers set kafka.controller=DEBUG",
    "loggers reset kafka.controller",
]
"""Each sends a request that changes something."""
CHANGES_OF_TWO_REQUESTS = [
    "apply {plan} --yes",
    "acls apply {acls} --delete --yes",
    "topics alter orders --partitions 9 --set retention.ms=8 --yes",
]
"""Each sends one that is made before another."""
CHANGES_ELSEWHERE = {
    "cluster roll",
    "cluster maintenance",
    "cluster add-broker",
    "cluster remove-broker",
    "topics set-replication",
    "reassign execute",
    "reassign verify",
    "reassign cancel",
    "features upgrade",
    "features downgrade",
    "tokens renew",
    "tokens expire",
    "tables import",
    "registry register",
    "registry delete",
    *("migrate copy-start", "migrate copy-cutover", "migrate copy-back"),
}
"""Commands that need several brokers, a KRaft cluster, SASL, an export, a schema registry or a second cluster:
tests/unit/commands/test_interruptions.py, and for the first and the last test_roll.py, tests/integration/spark,
tests/unit/commands/test_registry.py and test_migrate_online.py.
"""
QUERIES_ELSEWHERE = {
    *("doctor", "groups lag", "groups history", "metrics show"),
    *("registry list", "registry describe", "registry check"),
    *("groups tasks", "groups topology", "migrate check", "migrate copy-status"),
}
"""What they show depends on the time; or they need a schema registry (tests/unit/commands/test_registry.py), a streams
group (test_groups_of_kafka_4.py), a ZooKeeper (test_migrate_check.py) or a second cluster (test_migrate_online.py).
"""
UNKNOWN = [
    *("topics describe nope", "topics alter nope --partitions 5", "topics delete nope --yes"),
    *("configs describe topic nope", "configs describe broker 9", "configs describe logger 9"),
    *("configs alter topic nope --set retention.ms=7", "configs alter broker 9 --set message.max.bytes=7"),
    *("configs diff topic orders nope", "configs diff broker 1 9"),
    *("consume nope", "consume orders --partition 9", "copy nope archive", "copy orders nope"),
    *("produce nope --file {records}", "produce orders --partition 9 --file {records}"),
    *("groups describe nope", "groups members nope", "groups lag nope"),
    *("groups delete nope --yes", "groups delete-offsets nope --topic orders --yes"),
    *("groups lag --topic nope", "groups lag billing --topic orders:9"),
    *("groups history nope", "groups history billing --topic nope"),
    *(
        "groups export nope",
        "groups export billing --topic orders:9",
        "groups export billing --topic orders --topic nope",
    ),
    *("groups restore billing --backup {offsets} --topic orders --topic nope", "groups import {offsets} --topic nope"),
    "groups reset-offsets billing --topic nope --to-earliest --dry-run",
    *("topics set-replication nope --factor 1", "cluster add-broker 9", "cluster remove-broker 9"),
    *("topics offsets nope", "topics offsets orders --partition 9"),
    *("records delete nope --before-offset 1 --yes", "records delete orders:9 --before-offset 1 --yes"),
    *("perf produce nope --num-records 1 --client kctl --yes", "perf consume nope --num-records 1 --client kctl"),
    *("cluster log-dirs --broker 9", "cluster log-dirs --topic nope"),
    *("cluster maintenance on 9", "cluster maintenance off 9"),
    "cluster roll --brokers 9 --dry-run --restart-command true",
    *("reassign plan drain 9", "reassign plan add 9", "reassign plan rebalance --topic nope"),
    *("reassign plan-disks 9", "reassign plan-disks --topic nope", "reassign cancel nope:0"),
    *("reassign execute nope:0=0", "reassign status nope:0=0", "reassign verify nope:0=0"),
    *("elect --preferred --topic nope", "elect --preferred --topic orders --partition 9"),
    *("cluster verify --topic nope", "transactions describe nope", "transactions find-hanging --topic nope"),
    *("transactions describe-producers nope", "transactions abort nope:0 --start-offset 0 --yes"),
    "transactions terminate nope --yes",
    *("users alter nope --password-file {password}", "users delete nope --yes", "users list nope"),
    *("loggers list --broker 9", "loggers set kafka.controller=DEBUG --broker 9", "metrics show --broker 9"),
    "groups reset-streams nope --input-topic nope --yes",
]
"""Each names a topic, partition, group, user or broker that does not exist, which only the cluster knows."""
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


def names_of(kind: type) -> set[str]:
    return {
        noun if noun == verb else f"{noun} {verb}"
        for noun, verbs in all_commands().items()
        for verb, command in verbs.items()
        if isinstance(command, kind)
    }


def is_of(line: str, name: str) -> bool:
    return line == name or line.startswith(f"{name} ")


def test_every_command_is_in_a_table() -> None:
    changing = {name for name in names_of(ChangingCommand) if not any(is_of(line, name) for line in CHANGES)}
    assert changing == CHANGES_ELSEWHERE
    queries = {name for name in names_of(QueryCommand) if not any(is_of(line, name) for line in LINES.values())}
    assert queries == QUERIES_ELSEWHERE


class Interruption:
    """Sends a signal to the main thread instead of passing on a request that changes something."""

    def __init__(self, number: signal.Signals | None, passed_on: int = 0) -> None:
        """Without a number nothing is interrupted; so many requests that change something are passed on before."""
        self._number = number
        self._passed_on = passed_on
        self._lock = threading.Lock()
        self.stopped = ""
        """Name of the first request that was not passed on; no later one is."""

    def stops(self, frame: bytes) -> bool:
        """Whether the request is not passed on."""
        if self._number is None:
            return False
        with self._lock:
            name = "" if self.stopped else _change_in(frame)
            if name and self._passed_on > 0:
                self._passed_on -= 1
            elif name:
                self.stopped = name
                main_thread = threading.main_thread().ident
                assert main_thread is not None
                signal.pthread_kill(main_thread, self._number)
            return bool(self.stopped)


class Relay:
    """Passes requests on to a broker.

    A connection keeps the interruption that it was accepted with: what is read of it after the end of the command is
    not passed on either.
    """

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._interruption = Interruption(None)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @contextlib.contextmanager
    def interrupting(self, number: signal.Signals, passed_on: int = 0) -> Iterator[Interruption]:
        """Interrupts the command that runs meanwhile."""
        interruption = Interruption(number, passed_on)
        with self.asking(interruption):
            yield interruption

    @contextlib.contextmanager
    def asking(self, interruption: Interruption) -> Iterator[None]:
        """Asks this interruption about every request meanwhile."""
        self._interruption = interruption
        try:
            yield
        finally:
            self._interruption = Interruption(None)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, self._interruption), daemon=True).start()

    def _serve(self, client: socket.socket, interruption: Interruption) -> None:
        with client, socket.create_connection(("127.0.0.1", self._broker_port)) as broker:
            threading.Thread(target=_copy, args=(broker, client), daemon=True).start()
            stream = client.makefile("rb")
            with contextlib.suppress(OSError):
                while len(size := stream.read(4)) == 4:
                    frame = stream.read(struct.unpack(">i", size)[0])
                    if not interruption.stops(frame):
                        broker.sendall(size + frame)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


def _change_in(frame: bytes) -> str:
    """The name of the request, if it changes something."""
    header, position = decode_request_header(frame)
    known = api(header.api_key)
    assert known is not None
    request: object = decode(known.request, frame, header.api_version, position)[0]
    return type(request).__name__ if is_change(request) else ""


@pytest.fixture(scope="module")
def relayed() -> Iterator[tuple[Seeded, Relay]]:
    port = probe.free_port()
    relay = Relay(port)
    properties = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}",
        "delegation.token.master.key": "a-secret-of-the-tests",
    }
    try:
        with seeded_broker(port, properties) as one:
            yield one, relay
    finally:
        relay.close()


@pytest.fixture(scope="module")
def files(relayed: tuple[Seeded, Relay], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that command lines name."""
    seeded, _ = relayed
    folder = tmp_path_factory.mktemp("files")
    acls = json.loads(seeded.run("acls export", None)[1])
    acls["acls"][0]["host"] = "10.0.0.1"
    (folder / "acls").write_text(json.dumps(acls))
    (folder / "offsets").write_text(seeded.run("groups export billing", None)[1])
    (folder / "password").write_text("a-long-password")
    (folder / "password").chmod(0o600)
    with KafkaProducer(bootstrap_servers=seeded.bootstrap, transactional_id="billing") as producer:
        producer.init_transactions()
    assert seeded.run(f"users create alice --password-file {folder / 'password'}", None)[0] == 0
    return {f"{{{name}}}": str(folder / name) for name in ("acls", "offsets", "password")}


@pytest.mark.parametrize(("number", "status"), SIGNALS)
@pytest.mark.parametrize("line", CHANGES)
def test_interrupted_change_shows_what_was_done(
    relayed: tuple[Seeded, Relay],
    files: dict[str, str],
    line: str,
    number: signal.Signals,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeded, relay = relayed
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", f"127.0.0.1:{relay.port}")
    with relay.interrupting(number) as interruption:
        ended, out, err = seeded.run(" ".join(files.get(word, word) for word in line.split()), None)
    stopped = interruption.stopped.removesuffix("Request")
    assert stopped, (ended, out, err)
    assert ended == status, (out, err)
    assert "Traceback" not in err
    reports = [text for text in err.splitlines() if "interrupted" in text]
    assert len(reports) == 1, err
    is_named = re.search(rf"the outcome of 1 {stopped} request( \(.+\))? is unknown", reports[0])
    assert is_named or line.startswith(("apply", "perf")), reports


@pytest.mark.parametrize("line", CHANGES_OF_TWO_REQUESTS)
def test_change_interrupted_after_its_first_request_shows_what_was_done_and_what_was_not(
    relayed: tuple[Seeded, Relay], files: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded, relay = relayed
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", f"127.0.0.1:{relay.port}")
    with relay.interrupting(signal.SIGTERM, passed_on=1) as interruption:
        ended, out, err = seeded.run(" ".join(files.get(word, word) for word in line.split()), None)
    stopped = interruption.stopped.removesuffix("Request")
    assert (bool(stopped), ended) == (True, 143), (out, err)
    (report,) = [text for text in err.splitlines() if "interrupted" in text]
    if line.startswith("apply"):  # has a row for each change
        assert "the first change that is 'not done' is unknown" in report
        assert {"not done" in row for row in out.splitlines()} == {True, False}, out
        return
    unknown = rf"the outcome of 1 {stopped} request \(.+\) is unknown, and no other change was requested"
    assert re.search(rf"there are responses to 1 \w+ request \(.+\), {unknown}", report), err


@for_rows("line", UNKNOWN)
def test_what_does_not_exist_is_a_failure(
    relayed: tuple[Seeded, Relay], files: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded, _ = relayed
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", seeded.bootstrap)
    status, out, err = seeded.run(" ".join(files.get(word, word) for word in line.split()), None)
    assert status == 1, (out, err)
    assert re.search(r"nope|\b9\b", out + err), (out, err)


def in_closed_pipe(seeded: Seeded, line: str, *, with_messages: bool) -> tuple[int, str]:
    """Status and messages of a command whose stdout, and also stderr if requested, nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    before = sys.stdout, sys.stderr
    err = io.StringIO()
    with open(writing, "w") as out:
        sys.stdout, sys.stderr = out, out if with_messages else err
        try:
            status = main(seeded.words(line))
        finally:
            sys.stdout, sys.stderr = before
    return status, err.getvalue()


@for_rows("name", LINES)
def test_reader_that_leaves_is_no_error(relayed: tuple[Seeded, Relay], name: str) -> None:
    """Of a change nobody reads the messages either: it would end at the first of them."""
    seeded, _ = relayed
    line = LINES[name]
    golden = (GOLDEN / f"{name}.txt").read_text().partition("--format jsonl\n")[2]
    complete = int(golden.partition("\nexit status ")[2].split()[0])
    status, err = in_closed_pipe(seeded, f"{line} --format jsonl", with_messages=is_changing(line))
    assert status in ({complete} if is_changing(line) else {0, complete})
    assert "Traceback" not in err
    assert "Broken pipe" not in err


def test_output_that_cannot_be_written_is_no_success(relayed: tuple[Seeded, Relay]) -> None:
    """Every command line on a full disk and on a stdout that was closed at its start, in two formats."""
    seeded, _ = relayed
    failures = []
    for name, line in LINES.items():
        for format_ in ("plain", "json"):
            if not seeded.run(line, format_)[1]:
                continue
            for path, mode in (("/dev/full", os.O_WRONLY), ("/dev/null", os.O_RDONLY)):
                before = sys.stdout, sys.stderr
                err = io.StringIO()
                with open(os.open(path, mode), "w") as out:
                    sys.stdout, sys.stderr = out, err
                    try:
                        status = main(seeded.words(f"{line} --format {format_}"))
                    finally:
                        sys.stdout, sys.stderr = before
                if status == 0 or "kctl: " not in err.getvalue() or "Traceback" in err.getvalue():
                    failures.append((name, format_, path, status, err.getvalue()))
    assert not failures


def test_a_group_is_not_committed_what_was_not_written(relayed: tuple[Seeded, Relay]) -> None:
    seeded, _ = relayed
    for redirection in (">&-", ">/dev/full"):
        for option in ("--format table", "-f %v"):
            command = f"{sys.executable} -m kctl consume orders --group unwritten {option} {redirection}"
            ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
            assert (ran.returncode, "cannot write to stdout" in ran.stderr) == (1, True), (command, ran)
    status, _, err = seeded.run("groups export unwritten", None)
    assert (status, err) == (1, "kctl: no committed offsets: unwritten\n")


def is_changing(line: str) -> bool:
    return any(is_of(line, name) for name in names_of(ChangingCommand))


@pytest.mark.parametrize("with_messages", [False, True])
def test_change_is_made_although_its_output_is_closed(relayed: tuple[Seeded, Relay], *, with_messages: bool) -> None:
    seeded, _ = relayed
    names = " ".join(f"unread-{with_messages}-{number}" for number in range(200))
    status, _ = in_closed_pipe(seeded, f"topics create {names} --partitions 1", with_messages=with_messages)
    assert status == 0
    assert len(seeded.run(f"topics list --topic-regex unread-{with_messages}-.*", "plain")[1].splitlines()) == 200
    status, _ = in_closed_pipe(seeded, f"topics delete {names} nope --yes", with_messages=with_messages)
    assert status == 1


def test_pipefail_reports_no_failure_of_a_query_that_is_cut_off(relayed: tuple[Seeded, Relay]) -> None:
    command = f"set -o pipefail; {sys.executable} -m kctl loggers list | head -n 1"
    ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr, ran.stdout.count("\n")) == (0, "", 1)


def test_trouble_is_red_on_a_terminal(
    relayed: tuple[Seeded, Relay], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Golden files show that nothing is coloured with NO_COLOR, and without a terminal."""
    seeded, _ = relayed
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    assert main(seeded.words(LINES["topics-describe-unknown"])) == 1
    assert "\x1b[31m" in out.getvalue()
