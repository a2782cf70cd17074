"""kctl users against controllers that refuse a request which names a user twice, as those of KRaft do."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.protocol.apis import alter_user_scram_credentials as alter
from kctl.protocol.apis import describe_user_scram_credentials as describe
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

UNACCEPTABLE, DUPLICATE_RESOURCE, RESOURCE_NOT_FOUND = 93, 92, 91
BOTH = "--mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512"


class UserCluster(FakeCluster):
    """Keeps SCRAM credentials: (user, mechanism) -> iterations."""

    def __init__(self) -> None:
        super().__init__(brokers=2)
        self.credentials: dict[tuple[str, int], int] = {}
        self.refused_mechanism: int | None = None
        self.intercept(describe.DescribeUserScramCredentialsRequest, self._describe)
        self.intercept(alter.AlterUserScramCredentialsRequest, self._alter)

    @property
    def alterations(self) -> list[Any]:
        return [request for _, request in self.requested(alter.AlterUserScramCredentialsRequest)]

    def _describe(self, request: Any) -> Any:
        names = [user.name for user in request.users or []] or sorted({user for user, _ in self.credentials})
        results = []
        for name in names:
            found = [
                describe.CredentialInfo(mechanism=mechanism, iterations=count)
                for (user, mechanism), count in self.credentials.items()
                if user == name
            ]
            code = 0 if found else RESOURCE_NOT_FOUND
            results.append(
                describe.DescribeUserScramCredentialsResult(
                    user=name, error_code=code, error_message=None, credential_infos=found
                )
            )
        return describe.DescribeUserScramCredentialsResponse(error_code=0, error_message=None, results=results)

    def _alter(self, request: Any) -> Any:
        changes = [*request.deletions, *request.upsertions]
        codes: dict[str, int] = {}
        for change in changes:
            is_missing = change in request.deletions and (change.name, change.mechanism) not in self.credentials
            if change.name in codes:
                codes[change.name] = DUPLICATE_RESOURCE
            elif change.mechanism == self.refused_mechanism:
                codes[change.name] = UNACCEPTABLE
            else:
                codes[change.name] = RESOURCE_NOT_FOUND if is_missing else 0
        for change in changes:
            if codes[change.name]:
                continue
            if change in request.deletions:
                del self.credentials[change.name, change.mechanism]
            else:
                self.credentials[change.name, change.mechanism] = change.iterations
        return alter.AlterUserScramCredentialsResponse(
            results=[
                alter.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=None)
                for user, code in codes.items()
            ]
        )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[UserCluster]:
    monkeypatch.setenv("KCTL_USER_PASSWORD", "geheim")
    with UserCluster() as started:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        yield started


def test_each_mechanism_has_a_request_of_its_own(kctl: Kctl, cluster: UserCluster) -> None:
    ran = kctl(f"users create alice {BOTH}")
    assert (ran.status, ran.rows) == (0, [["alice", "SCRAM-SHA-256,SCRAM-SHA-512", "created", "-", "-"]])
    assert [len(request.upsertions) for request in cluster.alterations] == [1, 1]
    ran = kctl("users alter alice --iterations 8192")
    assert (ran.status, ran.rows) == (0, [["alice", "SCRAM-SHA-256,SCRAM-SHA-512", "altered", "-", "-"]])
    assert cluster.credentials == {("alice", 1): 8192, ("alice", 2): 8192}
    ran = kctl("users delete alice --yes")
    assert (ran.status, ran.rows) == (0, [["alice", "SCRAM-SHA-256,SCRAM-SHA-512", "deleted", "-", "-"]])
    assert cluster.credentials == {}


def test_a_mechanism_that_fails_has_a_row_beside_the_one_that_was_set(kctl: Kctl, cluster: UserCluster) -> None:
    cluster.refused_mechanism = 1
    ran = kctl(f"users create alice {BOTH}")
    assert ran.status == 1
    assert [row[:4] for row in ran.rows] == [
        ["alice", "SCRAM-SHA-256", "-", "UNACCEPTABLE_CREDENTIAL"],
        ["alice", "SCRAM-SHA-512", "created", "-"],
    ]


@pytest.mark.parametrize("more", ["--dry-run", "--yes"])
def test_nothing_is_deleted_if_a_credential_does_not_exist(kctl: Kctl, cluster: UserCluster, more: str) -> None:
    cluster.credentials["alice", 2] = 4096
    ran = kctl(f"users delete alice {BOTH} {more}")
    assert ran.status == 1
    message = "the user has no credential of SCRAM-SHA-256; nothing is deleted"
    assert ran.rows == [["alice", "SCRAM-SHA-256,SCRAM-SHA-512", "-", "RESOURCE_NOT_FOUND", message]]
    assert cluster.alterations == []


@pytest.mark.parametrize("verb", ["create", "alter"])
def test_dry_run_reads_the_password_file(kctl: Kctl, cluster: UserCluster, tmp_path: Path, verb: str) -> None:
    """A file that is missing or empty would fail the change."""
    file = tmp_path / "password"
    line = f"users {verb} alice --password-file {file} --dry-run"
    assert f"--password-file {file} cannot be read" in kctl(line).err
    file.write_text("\n")
    file.chmod(0o600)
    ran = kctl(line)
    assert (ran.status, ran.err) == (2, "kctl: the password must not be empty\n")
    assert cluster.alterations == []


def test_a_password_of_the_environment_that_is_not_utf_8_is_refused(
    kctl: Kctl, cluster: UserCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environb, b"KCTL_USER_PASSWORD", b"p\xff")
    ran = kctl("users create alice")
    assert (ran.status, cluster.alterations) == (ExitStatus.USAGE, [])
    assert ran.err == "kctl: the password is not valid UTF-8\n"


class TerminalInput(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (EOFError(), ExitStatus.REFUSED, "kctl: cancelled: no password was given\n"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, ""), ExitStatus.USAGE, "kctl: the password is not valid UTF-8\n"),
    ],
)
def test_a_prompt_for_a_password_that_gets_no_text_ends_the_command(
    kctl: Kctl, cluster: UserCluster, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, reason: str
) -> None:
    """What getpass raises at Ctrl-D and for bytes that are not UTF-8; it reads the terminal of the process itself."""

    def read_nothing(_: str) -> str:
        raise error

    monkeypatch.delenv("KCTL_USER_PASSWORD")
    monkeypatch.setattr("sys.stdin", TerminalInput())
    monkeypatch.setattr("getpass.getpass", read_nothing)
    ran = kctl("users create alice")
    assert (ran.status, ran.err, cluster.alterations) == (status, reason, [])
