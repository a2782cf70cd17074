"""What commands show in every format, compared with golden files; KCTL_WRITE_GOLDEN=1 writes these.

Each file of tests/golden/output has one command line in table (on a terminal of 80 columns), plain, json, jsonl, yaml
and csv.  What differs between runs is replaced by text of the same length: ports, ids, times and the data folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kctl.cli import main
from kctl.output.terminal_text import display_width, word_width, words_of
from tests.peers import probe
from tests.peers.kctl_broker import kctl_broker
from tests.peers.output_schemas import problem_of
from tests.rows import for_rows

GOLDEN = Path(__file__).parents[2] / "golden" / "output"
FORMATS = ("table", "plain", "json", "jsonl", "yaml", "csv")
SEED = [
    "topics create orders --partitions 2 --set retention.ms=-1",
    "topics create events --partitions 1",
    "topics create groups-of-golden --partitions 1",
    "configs alter topic orders --set segment.bytes=1048576",
    "produce orders --partition 0 --input jsonl --file {records}",
    "groups reset-offsets billing --topic orders --to-offset 1 --yes --no-backup",
    "groups reset-offsets 監査-🚚-audit --topic orders:0 --to-earliest --yes --no-backup",
    "quotas alter --user alice --client-id app --producer-rate 1MB --yes",
    "quotas alter --default-user --request-percentage 50 --yes",
    "acls add --allow User:alice --operation read --topic orders",
    "profile add staging --bootstrap-server kafka1:9092",
]
RECORDS = [
    {"key": "k1", "value": "hello", "timestamp_ms": 1_767_225_600_000, "headers": [{"key": "source", "value": "web"}]},
    {"key": None, "value": 'a,"b"\n=1+1\t\x1b[31m', "timestamp_ms": 1_767_225_601_000},
    {"key": "/4A=", "key_encoding": "base64", "value": None, "timestamp_ms": 1_767_225_602_000},
]
LINES = {
    "topics-list": "topics list",
    "topics-list-human": "topics list --internal --human",
    "topics-describe": "topics describe",
    "topics-describe-unknown": "topics describe orders nope",
    "topics-create": "topics create more --partitions 3 --dry-run",
    "topics-create-refused": "topics create orders bad,name --dry-run",
    "topics-alter": "topics alter orders --partitions 4 --dry-run",
    "topics-delete": "topics delete --topic-regex .*orders.* --dry-run",
    "configs-describe": "configs describe topic orders",
    "configs-alter": "configs alter topic orders --set retention.ms=7 --delete-config segment.bytes --dry-run",
    "groups-list": "groups list",
    "groups-describe": "groups describe billing",
    "groups-describe-state": "groups describe --show state",
    "groups-members": "groups members --all",
    "groups-delete": "groups delete billing nope --dry-run",
    "groups-delete-offsets": "groups delete-offsets billing --topic orders --dry-run",
    "groups-reset-offsets": "groups reset-offsets billing --topic orders --to-latest --dry-run",
    "topics-offsets": "topics offsets orders",
    "records-delete": "records delete orders:0 --before-offset 2 --dry-run",
    "consume": "consume orders --from start --until end",
    "cluster-describe": "cluster describe",
    "cluster-health": "cluster health",
    "configs-diff": "configs diff topic orders events",
    "cluster-log-dirs": "cluster log-dirs",
    "cluster-log-dirs-of-topics": "cluster log-dirs --topic orders --topic events",
    "cluster-log-dirs-by-topic": "cluster log-dirs --topic orders --topic events --by topic --human",
    "elect": "elect --preferred --dry-run",
    "reassign-list": "reassign list",
    "reassign-status": "reassign status orders:0=0",
    "reassign-execute": "reassign execute orders:0=0 --dry-run",
    "reassign-plan": "reassign plan rebalance --topic orders",
    "transactions-list": "transactions list",
    "transactions-describe": "transactions describe nope",
    "transactions-find-hanging": "transactions find-hanging",
    "transactions-describe-producers": "transactions describe-producers groups-of-golden",
    "quotas-describe": "quotas describe",
    "quotas-alter": "quotas alter --user bob --consumer-rate 2MB --dry-run",
    "quotas-check": "quotas check --user alice --client-id app",
    "users-list": "users list",
    "acls-list": "acls list",
    "acls-check": "acls check User:alice read topic:orders",
    "acls-who-can": "acls who-can describe orders",
    "acls-what-can": "acls what-can User:alice",
    "tokens-describe": "tokens describe",
    "cluster-api-versions": "cluster api-versions --differing",
    "features-describe": "features describe",
    "features-upgrade": "features upgrade --metadata-version 3.9 --dry-run",
    "cluster-quorum": "cluster quorum",
    "plan": "plan {plan}",
    "apply": "apply {plan} --dry-run",
    "profile-add": "profile add staging --bootstrap-server kafka1:9092 --replace",
    "profile-list": "profile list",
    "profile-show": "profile show staging",
    "cluster-verify": "cluster verify --topic orders",
    "groups-reset-streams": "groups reset-streams billing --input-topic orders --dry-run",
    "perf-produce": "perf produce events --num-records 10 --client kctl --dry-run",
    "perf-latency": "perf latency events --num-records 10 --client kctl --dry-run",
    "usage": "topics list --no-such-option",
    "loggers-list": "loggers list --match kctl\\.server\\.coordination\\.replies",
    "dump-log": "dump-log {log}",
    "dump-log-records": "dump-log --records {log}",
    "dump-log-summary": "dump-log --summary {log}",
}
"""File -> command line."""
PLAN = """\
version: 1
managed: {topics: [orders, returns]}
topics:
  orders: {partitions: 3, configs: {retention.ms: 86400000}}
  returns: {partitions: 1}
"""
SAME_LENGTH = [
    (r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "2026-01-01T00:00:00.000Z"),
    (r"\b1[789]\d{11}\b", "1767225600000"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Seeded:
    """A broker with topics, records, groups, quotas and ACLs."""

    def __init__(self, bootstrap: str, data: Path) -> None:
        self.bootstrap = bootstrap
        self.data = data
        self.records = data.parent / "records.jsonl"
        self.plan = data.parent / "plan.yaml"
        self._stand_ins: dict[str, str] = {}

    def run(self, line: str, format_: str | None) -> tuple[int, str, str]:
        """Status, output and messages of a command line; for table on a terminal, with NO_COLOR."""
        out = Terminal() if format_ == "table" else io.StringIO()
        err = io.StringIO()
        words = self.words(line)
        if format_ is not None:
            words += ["--format", format_]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            if format_ == "table":
                patch.setenv("NO_COLOR", "1")
            status = main(words)
        assert problem_of(words, out.getvalue()) is None
        return status, out.getvalue(), err.getvalue()

    def words(self, line: str) -> list[str]:
        """The words of a command line, with the names of files in place of {log} and so on."""
        files = {"{log}": self.log_file(), "{records}": str(self.records), "{plan}": str(self.plan)}
        return [files.get(word, word) for word in line.split()]

    def log_file(self) -> str:
        return str(next((self.data / "logs").glob("orders-0/*.log"), ""))

    def learn_ids(self) -> None:
        """Remembers what differs between runs."""
        port = self.bootstrap.rpartition(":")[2]
        self._stand_ins = {f"127.0.0.1:{port}": "127.0.0.1:99999", str(self.data): "/tmp/kctl-golden-DATA-DIR"}
        self._port = re.compile(rf"(?<![\d.]){port}(?![\d.])")
        described = json.loads(self.run("cluster describe", "json")[1])
        topics = json.loads(self.run("topics describe --topic-regex .*", "json")[1])
        for number, text in enumerate([described["cluster_id"], *(topic["topic_id"] for topic in topics)]):
            self._stand_ins[text] = f"ID{number}".ljust(22, "x")

    def masked(self, text: str) -> str:
        for found, stand_in in self._stand_ins.items():
            if stand_in.startswith("ID"):  # YAML quotes it if it does not begin with a letter.
                text = text.replace(f': "{found}"\n', f": {found}\n")
            text = text.replace(found, stand_in)
        text = self._port.sub("99999", text)
        for pattern, stand_in in SAME_LENGTH:
            text = re.sub(pattern, stand_in, text)
        return text


@pytest.fixture(scope="module")
def seeded() -> Iterator[Seeded]:
    # A port of five digits, whatever the machine's range of ports is.
    port = next(candidate for candidate in iter(probe.free_port, None) if candidate >= 10_000)
    with seeded_broker(port) as one:
        one.learn_ids()
        yield one


@contextlib.contextmanager
def seeded_broker(port: int, properties: Mapping[str, str] | None = None) -> Iterator[Seeded]:
    """In a folder whose name has always the same length, because tables depend on it."""
    folder = Path(tempfile.mkdtemp(prefix="kctl-golden-", dir="/tmp"))
    variables = {
        "COLUMNS": "80",
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder),
        "TERM": "xterm",
    }
    secure = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.delenv("NO_COLOR", raising=False)
        try:
            with kctl_broker(folder / "data", port=port, properties=secure | dict(properties or {})) as broker:
                patch.setenv("KCTL_BOOTSTRAP_SERVER", broker.bootstrap)
                one = Seeded(broker.bootstrap, folder / "data")
                one.records.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
                one.plan.write_text(PLAN)
                for line in SEED:
                    status, _, err = one.run(line, None)
                    assert status == 0, (line, err)
                yield one
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@for_rows("name", LINES)
def test_output_is_as_ever_in_every_format(seeded: Seeded, name: str) -> None:
    pieces = []
    for format_ in FORMATS:
        status, out, err = seeded.run(LINES[name], format_)
        pieces.append(f"$ kctl {LINES[name]} --format {format_}\n{out}{err}exit status {status}\n\n")
        if format_ == "table":
            wide = [line for line in out.splitlines() if display_width(line) > 80 and word_width(line) <= 80]
            assert wide == []
    text = seeded.masked("".join(pieces))
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("KCTL_WRITE_GOLDEN"):
        file.write_bytes(text.encode())
    golden = file.read_bytes().decode()
    assert text.split("\n") == golden.split("\n"), "look at the difference; KCTL_WRITE_GOLDEN=1 accepts it"


@for_rows("name", LINES)
def test_table_fits_a_terminal_of_40_columns(seeded: Seeded, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word of the plain form is in the table; times and other numbers differ between runs."""
    _, plain, _ = seeded.run(LINES[name], "plain")
    monkeypatch.setenv("COLUMNS", "40")
    _, out, err = seeded.run(LINES[name], "table")
    assert [line for line in out.splitlines() if display_width(line) > 40 and word_width(line.strip()) <= 40] == []
    words = {word.strip() for line in plain.splitlines() for cell in line.split("\t") for word in words_of(cell)}
    # The type and the name of a single resource are in the command line; columns that a note names are left out.
    words -= {"-", *LINES[name].split(), *(["false", "DYNAMIC_TOPIC_CONFIG"] if "not shown, " in err else [])}
    titles = out.replace("-", "_")
    assert [word for word in words if word not in out and word not in titles and not any(map(str.isdigit, word))] == []


def test_every_golden_file_has_a_command() -> None:
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(LINES)
