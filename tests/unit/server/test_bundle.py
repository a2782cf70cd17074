"""The archive for a bug report: complete or absent, bounded, without secrets."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.server.process.bundle import (
    BUNDLE_LISTED_FILES_MAX,
    BUNDLE_LOG_BYTES_MAX,
    ROOT,
    Missing,
    Part,
    machine_parts,
    redactor,
    tail,
    write_archive,
)
from tests.rows import for_rows

SECRET = "correct horse battery"


def contents(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        found = {}
        for member in opened.getmembers():
            file = opened.extractfile(member)
            assert file is not None
            found[member.name.removeprefix(f"{ROOT}/")] = file.read().decode()
        return found


def written(path: Path, parts: list[Part], secrets: list[str] | None = None) -> dict[str, str]:
    write_archive(path, parts, redactor(secrets or []))
    return contents(path)


def text(name: str, body: str) -> Part:
    return Part(name, lambda: body)


def failing(error: BaseException) -> Callable[[], str]:
    def read() -> str:
        raise error

    return read


def test_missing_parts_are_named_in_the_overview(tmp_path: Path) -> None:
    parts = [text("a", "body"), Part("b", failing(Missing("no endpoint"))), Part("c", failing(OSError(5, "I/O error")))]
    found = written(tmp_path / "x.tar.gz", parts)
    assert sorted(found) == ["a", "overview.txt"]
    assert "a: 4 bytes\nb: no endpoint\nc: [Errno 5] I/O error\n" in found["overview.txt"]


def test_only_the_owner_may_read_the_archive(tmp_path: Path) -> None:
    written(tmp_path / "x.tar.gz", [text("a", "")])
    assert (tmp_path / "x.tar.gz").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("error", [RuntimeError("bug"), KeyboardInterrupt()])
def test_failure_leaves_no_file(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        write_archive(tmp_path / "x.tar.gz", [text("a", "body"), Part("b", failing(error))], redactor([]))
    assert list(tmp_path.iterdir()) == []


def test_existing_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_text("before")
    with pytest.raises(FileExistsError):
        write_archive(tmp_path / "x.tar.gz", [], redactor([]))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


@for_rows(
    "planted",
    [
        f"ssl.keystore.password={SECRET.replace(' ', '-')}",
        f'sasl.jaas.config: "{SECRET}"',
        f"password='{SECRET}'",
        f'{{"client_secret": "{SECRET}"}}',
        f"loading https://user:{SECRET.replace(' ', '-')}@host/x",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
    ],
)
def test_texts_that_look_like_secrets_are_hidden(planted: str) -> None:
    hidden = redactor([])(f"before\n{planted}\n")
    assert "correct" not in hidden
    assert hidden.startswith("before\n")


@given(st.text(min_size=6, max_size=40), st.text(), st.text())
def test_known_secrets_are_hidden_wherever_they_are(secret: str, before: str, after: str) -> None:
    hidden = redactor([secret, secret[:-1]])(before + secret + after)
    assert secret not in hidden.replace("[hidden]", "\0") or secret in "[hidden]"


def test_metrics_and_log_lines_stay_as_they_are() -> None:
    body = (
        'kafka_network_requestmetrics_totaltimems{request="CreateDelegationToken",quantile="0.5"} 1.0\n'
        "2026-11-22 INFO kctl.server.broker.broker serving broker=0 endpoints=PLAINTEXT://127.0.0.1:9092 cluster=x\n"
    )
    assert redactor(["short"])(body) == body


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "broker.out"
    path.write_text("".join(f"line {number}\n" for number in range(1000)))
    shown = tail(path, 100)
    assert shown.endswith("line 998\nline 999\n")
    assert len(shown) < 140
    assert shown.splitlines()[1].startswith("line ")
    assert tail(path, 1 << 20) == path.read_text()


def test_links_and_other_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "absent", "."):
        with pytest.raises(Missing):
            tail(tmp_path / name, 10)


def test_bounds_hold_for_a_large_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "logs").mkdir(parents=True)
    for number in range(300):
        (folder / "logs" / f"{number}.log").touch()
    log = folder / "broker.out"
    with log.open("wb") as file:
        file.truncate(10 * BUNDLE_LOG_BYTES_MAX)
    found = written(tmp_path / "x.tar.gz", list(machine_parts(folder, [str(folder / "logs")], [log])))
    assert len(found["logs/broker.out"]) <= BUNDLE_LOG_BYTES_MAX + 100
    assert len(found["listing-1.txt"].splitlines()) == 301
    assert BUNDLE_LISTED_FILES_MAX < 1 << 20


def test_listing_ends_at_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.server.process.bundle.BUNDLE_LISTED_FILES_MAX", 10)
    for number in range(20):
        (tmp_path / f"{number}").touch()
    found = written(tmp_path / "x.tar.gz", list(machine_parts(tmp_path, [], [])))
    assert len(found["listing-0.txt"].splitlines()) == 12
    assert found["listing-0.txt"].endswith("more than 10 files\n")
