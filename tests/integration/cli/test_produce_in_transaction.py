"""`kctl produce --transactional-id` on any broker: read_committed consumers see all of the input or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import ON_OURS, Kctl
from tests.integration.cli.group_readers import ROOT, TIMEOUT_S
from tests.peers import probe
from tests.peers.markers import wait_for_markers

STOP_TIMEOUT_S = 60


@pytest.fixture
def open_transaction(kctl: Kctl, bootstrap: str, topic: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`kctl produce` in the middle of its input, when ten records are in the log."""
    config = tmp_path / "open.properties"
    config.write_text("transaction.timeout.ms=600000\n")
    command = [sys.executable, "-m", "kctl", "produce", topic, "--transactional-id", topic]
    command += ["--command-config", str(config)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"KCTL_BOOTSTRAP_SERVER": bootstrap},
    )
    with process:
        assert process.stdin
        process.stdin.write(b"early\n" * 10)
        process.stdin.flush()
        is_there = lambda: values(kctl, topic, "read_uncommitted") == ["early"] * 10  # noqa: E731
        probe.wait_until(is_there, what="records of an open transaction", timeout_s=TIMEOUT_S)
        yield process
        process.kill()


def values(kctl: Kctl, topic: str, isolation: str = "read_committed") -> list[str]:
    return [row[4] for row in kctl(f"consume {topic} --isolation-level {isolation}").rows]


def test_whole_input_is_committed_or_nothing(kctl: Kctl, topic: str, bootstrap: str) -> None:
    lines = "".join(f"{number}:{number}\n" for number in range(1_000))
    options = f"--transactional-id {topic} --key-separator :"
    done = kctl(f"produce {topic} {options}", stdin=lines.encode())
    assert (done.status, "1,000 records" in done.err) == (0, True)
    wait_for_markers(bootstrap, topic)
    assert sorted(values(kctl, topic), key=int) == [str(number) for number in range(1_000)]

    bad = kctl(f"produce {topic} {options}", stdin=lines.encode() + b"no separator\n")
    assert (bad.status, "line 1001" in bad.err) == (2, True)
    wait_for_markers(bootstrap, topic)
    assert len(values(kctl, topic)) == 1_000


@ON_OURS
def test_refused_record_aborts_the_transaction(kctl: Kctl, topic: str, bootstrap: str) -> None:
    assert kctl(f"topics alter {topic} --set max.message.bytes=100000").status == 0
    refused = kctl(
        f"produce {topic} --transactional-id {topic} --partition 0 --format json",
        stdin=b"good\n" * 9_000 + b"x" * 200_000 + b"\n",
    )
    assert refused.status == 1
    assert {row["offset"] for row in refused.document} == {None}
    assert {"MESSAGE_TOO_LARGE"} <= {row["error"] for row in refused.document}
    wait_for_markers(bootstrap, topic)
    assert values(kctl, topic) == []


@ON_OURS
def test_open_transaction_is_invisible_and_ends_with_the_input(
    kctl: Kctl, topic: str, bootstrap: str, open_transaction: subprocess.Popen[bytes]
) -> None:
    assert values(kctl, topic) == []
    assert open_transaction.stdin
    open_transaction.stdin.write(b"late\n")
    open_transaction.stdin.close()
    assert open_transaction.wait(STOP_TIMEOUT_S) == 0
    wait_for_markers(bootstrap, topic)
    assert sorted(values(kctl, topic)) == ["early"] * 10 + ["late"]


@ON_OURS
def test_interrupt_aborts_the_transaction(
    kctl: Kctl, topic: str, bootstrap: str, open_transaction: subprocess.Popen[bytes]
) -> None:
    open_transaction.send_signal(signal.SIGINT)
    assert open_transaction.wait(STOP_TIMEOUT_S) == 130
    wait_for_markers(bootstrap, topic)
    after = kctl(f"produce {topic}", stdin=b"after\n")
    assert (after.status, values(kctl, topic)) == (0, ["after"])


def test_next_run_with_the_same_transactional_id_fences_a_hanging_one(
    kctl: Kctl, topic: str, bootstrap: str, open_transaction: subprocess.Popen[bytes]
) -> None:
    assert kctl(f"produce {topic} --transactional-id {topic}", stdin=b"second\n").status == 0
    wait_for_markers(bootstrap, topic)
    assert values(kctl, topic) == ["second"]
    assert open_transaction.stdin
    assert open_transaction.stderr
    open_transaction.stdin.write(b"late\n")
    open_transaction.stdin.close()
    assert open_transaction.wait(STOP_TIMEOUT_S) == 1
    assert b"another producer uses the transactional id" in open_transaction.stderr.read()
    assert values(kctl, topic) == ["second"]
