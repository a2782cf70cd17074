"""Numbers beyond their protocol field are usage errors in every option and file, never internal errors."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.commands.broker import zookeeper
from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.options.parameters import (
    Parameter,
    choices_of,
    cluster_options,
    is_argument,
    is_flag,
    name_of,
    number_range,
)
from kctl.commands.frame.root import all_commands
from kctl.errors import UsageError
from kctl.output.quantities import INT64_MAX, is_integer, parse_integer
from tests.peers.ran import Ran
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.conftest import kctl as kctl  # noqa: PLC0414 - a fixture
from tests.unit.commands.test_records import stdin

NO_NUMBERS = (
    "9" * 30,
    "-" + "9" * 30,
    "9" * 5000,
    "NaN",
    "inf",
    "1e400",
    "１２",
    "٣",
    "1_0",
    "0x10",
    " 7",
    "7\n",
    "-",
    "+",
)
COMMANDS = [(noun, command) for noun, verbs in all_commands().items() for command in verbs.values()]
NOT_TRIED = {
    *(("broker", "start"), ("cluster", "start"), ("cluster", "stop"), ("broker", "zookeeper-start")),
    *(("cluster", "log-dirs"), ("reassign", "status"), ("reassign", "verify"), ("reassign", "list")),
    *(("perf", "produce"), ("perf", "latency"), ("registry", "serve")),
}
"""Commands that would change something if a value turned out to be valid, or run for seconds, and those that the test
cluster cannot answer.
"""
NAMES = {"group", "file", "key", "state_dir", "data_dir", "rollback_file", "transactional_id"}
"""Parameters that accept any text."""


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands write files, such as `broker bundle --output`, to a folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with FakeCluster(brokers=2) as cluster:
        cluster.create("x", leaders=2)
        cluster.groups["x"] = FakeGroup()
        yield cluster.bootstrap


def valid_text(parameter: Parameter) -> str:
    if choices := choices_of(parameter):
        return choices[0]
    bounds = number_range(parameter)
    return "x" if bounds is None else str(bounds[0])


def words_of(noun: str, command: LocalCommand, tried: Parameter, text: str) -> list[str]:
    """A command line with this text as the parameter, and all other required parameters."""
    words = [noun] if noun == command.name else [noun, command.name]
    positional = []
    for parameter in command.own_params:
        if parameter is tried or parameter.required:
            given = text if parameter is tried else valid_text(parameter)
            if is_argument(parameter):
                positional.append(given)
            else:
                words.append(f"{name_of(parameter)}={given}")
    return [*words, "--", *positional]


def numeric_parameters() -> list[tuple[str, LocalCommand, Parameter]]:
    return [
        (noun, command, parameter)
        for noun, command in COMMANDS
        for parameter in command.own_params
        if number_range(parameter)
    ]


@for_rows("noun, command, parameter", numeric_parameters)
def test_every_numeric_option_refuses_what_is_out_of_its_range(
    kctl: Kctl, noun: str, command: LocalCommand, parameter: Parameter
) -> None:
    low, high = number_range(parameter) or (0, 0)
    for text in (*NO_NUMBERS, str(low - 1), str(high + 1)):
        ran = kctl("", *words_of(noun, command, parameter, text))
        assert ran.status == ExitStatus.USAGE
        assert f"is a whole number from {low} to {high}" in ran.err


def textual_parameters() -> list[tuple[str, LocalCommand, Parameter]]:
    """Options and arguments with a syntax of their own, such as offsets, times and sizes."""
    common = [("topics", all_commands()["topics"]["list"], parameter) for parameter in cluster_options()]
    return common + [
        (noun, command, parameter)
        for noun, command in COMMANDS
        if (noun, command.name) not in NOT_TRIED
        for parameter in command.own_params
        if not (is_flag(parameter) or number_range(parameter) or choices_of(parameter)) and parameter.name not in NAMES
    ]


@for_rows("noun, command, parameter", textual_parameters)
def test_no_text_in_place_of_a_number_is_an_internal_error(
    bootstrap: str, kctl: Kctl, monkeypatch: pytest.MonkeyPatch, noun: str, command: LocalCommand, parameter: Parameter
) -> None:
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", bootstrap)
    monkeypatch.setattr(zookeeper, "CONNECT_TIMEOUT_MS", 100)  # of --zookeeper, where there is none
    for number in ("-" + "9" * 30, "9" * 5000, "１２"):
        shapes = [number]
        if parameter.name in {"partition", "topic", "moves", "replica_assignment", "from_", "until", "offset", "time"}:
            shapes += [f"x:{number}", f"x:0={number}", f"0-{number}", f"@{number}", f":{number}", f"0:{number}"]
        for text in shapes:
            with stdin(b""):
                ran = kctl("", *words_of(noun, command, parameter, text))
            assert "internal error" not in ran.err, text[:50]


def refused(ran: Ran, words: str) -> None:
    assert (ran.status, words in ran.err) == (ExitStatus.USAGE, True), ran.err[:500]


@for_rows(
    "name, number",
    [
        ("partition", "-1"),
        ("timestamp_ms", "-9223372036854775808"),
        *itertools.product(["partition", "timestamp_ms"], ["9" * 30, "9" * 5000, "true", "1.5", "NaN"]),
    ],
)
def test_numbers_in_lines_of_json_are_checked(
    bootstrap: str, kctl: Kctl, monkeypatch: pytest.MonkeyPatch, name: str, number: str
) -> None:
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", bootstrap)
    with stdin(b'{"value":"a"}\n{"value":"b","%s":%s}\n' % (name.encode(), number.encode())):
        refused(kctl("produce x --input jsonl"), "standard input line 2: ")


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "-1", "true"])
@pytest.mark.parametrize("line", ["reassign execute --reassignment-json-file", "elect --preferred --path-to-json-file"])
def test_numbers_in_files_of_json_are_checked(tmp_path: Path, kctl: Kctl, line: str, number: str) -> None:
    path = tmp_path / "moves.json"
    for entry in ('{"topic":"x","partition":%s,"replicas":[1]}', '{"topic":"x","partition":0,"replicas":[%s]}'):
        if "elect" in line and 'replicas":[1]' not in entry:
            continue
        path.write_text('{"partitions":[' + entry % number + "]}")
        ran = kctl(line, str(path))
        assert (ran.status, str(path) in ran.err) == (ExitStatus.USAGE, True)


@pytest.mark.parametrize("line", ["x,9999999999,1", "x,0,99999999999999999999", f"x,0,{'9' * 5000}", "x,0,-1", "x,٣,1"])
def test_numbers_in_files_of_offsets_are_checked(tmp_path: Path, kctl: Kctl, line: str) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(f"x,0,5\n{line}\n")
    refused(kctl("groups reset-offsets x --dry-run --from-file", str(path)), "line 2: the ")


@pytest.mark.parametrize("document", ["[" * 100_000, '{"a":' * 100_000])
def test_json_that_is_nested_too_deeply_is_no_internal_error(
    bootstrap: str, kctl: Kctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, document: str
) -> None:
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", bootstrap)
    path = tmp_path / "moves.json"
    path.write_text(document)
    refused(kctl("reassign execute --reassignment-json-file", str(path)), "not JSON")
    refused(kctl("produce x --input jsonl --file", str(path)), "not JSON")


@pytest.mark.parametrize("text", ["9" * 30, "9" * 5000, "-1", "１２", "2147483648"])
def test_numbers_in_client_properties_are_checked(kctl: Kctl, tmp_path: Path, text: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"default.api.timeout.ms={text}\n")
    refused(kctl("topics list --command-config", str(path)), "default.api.timeout.ms")


def test_a_character_that_is_half_a_pair_is_refused_by_its_line(
    bootstrap: str, kctl: Kctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", bootstrap)
    for record in ({"value": "\ud800"}, {"value": None, "headers": [{"key": "\ud800", "value": "x"}]}):
        with stdin(json.dumps(record).encode()):
            refused(kctl("produce x --input jsonl"), "line 1: '\\ud800' contains an unpaired surrogate")


@given(st.integers())
def test_an_integer_is_read_exactly_or_refused(number: int) -> None:
    for text in (str(number), f"{number:+}", f"{'-' if number < 0 else ''}000{abs(number)}"):
        try:
            assert parse_integer(text, "it", low=-INT64_MAX, high=INT64_MAX) == number
        except UsageError:
            assert not is_integer(number, low=-INT64_MAX, high=INT64_MAX)


@given(st.text())
def test_any_other_text_is_no_integer(text: str) -> None:
    with suppress(UsageError):
        assert parse_integer(text, "it") == int(text)
