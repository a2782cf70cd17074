"""`kctl users` against a broker and against ZooKeeper alone: other clients authenticate with the credentials."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.probe import wait_until
from tests.peers.sasl_broker import SaslBroker

PASSWORD = "pa,ss=wörd-7395"
TIMEOUT_S = 60


def kctl(*arguments: str, password: str | None = None) -> tuple[int, Any, str]:
    """The exit status, the JSON on stdout and the text on stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "KCTL_USER_PASSWORD"}
    if password is not None:
        environment["KCTL_USER_PASSWORD"] = password
    finished = run_kctl(*arguments, "--format", "json", environment=environment)
    return finished.returncode, json.loads(finished.stdout or "null"), finished.stderr


def can_log_in(broker: SaslBroker, mechanism: str, user: str, password: str) -> bool:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": broker.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }
    try:
        AdminClient(settings).list_topics(timeout=0.7)
    except Exception:
        return False
    return True


def eventually_logs_in(broker: SaslBroker, mechanism: str, user: str, password: str) -> None:
    wait_until(lambda: can_log_in(broker, mechanism, user, password), what=f"login of {user}", timeout_s=TIMEOUT_S)


@pytest.fixture(params=["bootstrap-server", "zookeeper"])
def where(request: pytest.FixtureRequest, broker: SaslBroker) -> list[str]:
    if request.param == "bootstrap-server":
        return ["--bootstrap-server", broker.plaintext]
    running = json.loads((broker.process.data_dir / "broker.json").read_text())
    return ["--zookeeper", running["zookeeper"]]


def test_the_life_of_a_user(broker: SaslBroker, where: list[str], tmp_path: Path) -> None:
    user = f"cärol, the=user{where[0]}"
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\nsecond line\n")
    mechanisms = ["--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512"]

    status, rows, _ = kctl("users", "create", user, *mechanisms, "--password-file", str(file), *where)
    assert (status, rows[0]["status"], rows[0]["mechanisms"]) == (0, "created", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        eventually_logs_in(broker, mechanism, user, PASSWORD)

    status, rows, _ = kctl("users", "create", user, *where, password="x")
    assert (status, rows[0]["error"]) == (1, "DUPLICATE_RESOURCE")

    status, rows, _ = kctl("users", "list", user, *where)
    assert status == 0
    assert [(row["mechanism"], row["iterations"]) for row in rows] == [("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 4096)]
    assert kctl("users", "list", *where)[1][-1]["user"] >= user

    status, rows, _ = kctl("users", "alter", user, "--iterations", "8192", *where, password="new-secret")
    assert (status, rows[0]["mechanisms"]) == (0, ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    eventually_logs_in(broker, "SCRAM-SHA-512", user, "new-secret")
    assert not can_log_in(broker, "SCRAM-SHA-256", user, PASSWORD)

    status, rows, _ = kctl("users", "delete", user, "--mechanism", "SCRAM-SHA-256", "--yes", *where)
    assert (status, rows[0]["status"]) == (0, "deleted")
    status, rows, _ = kctl("users", "delete", user, "--dry-run", *where)
    assert (status, rows[0]["status"], rows[0]["mechanisms"]) == (0, "would be deleted", ["SCRAM-SHA-512"])
    eventually_logs_in(broker, "SCRAM-SHA-512", user, "new-secret")
    assert kctl("users", "delete", user, "--yes", *where)[0] == 0
    wait_until(
        lambda: not can_log_in(broker, "SCRAM-SHA-512", user, "new-secret"), what="deletion", timeout_s=TIMEOUT_S
    )
    assert kctl("users", "delete", user, "--yes", *where)[1][0]["error"] == "RESOURCE_NOT_FOUND"
    assert kctl("users", "alter", user, *where, password="x")[1][0]["error"] == "RESOURCE_NOT_FOUND"


def test_a_password_prompt_appears_on_a_terminal_only(broker: SaslBroker) -> None:
    status, _, message = kctl("users", "create", "nobody", "--bootstrap-server", broker.plaintext)
    assert status == 5
    assert "--password-file" in message


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["create", "u", "--mechanism", "PLAIN"], "is not one of SCRAM-SHA-256, SCRAM-SHA-512"),
        (["create", "u", "--iterations", "4095"], "4096"),
        (["create", "u", "--iterations", "16385"], "16384"),
        (["create", "", "--zookeeper", "127.0.0.1:1"], "USER is empty"),
    ],
)
def test_invalid_usage_is_refused_with_the_reason(arguments: list[str], reason: str) -> None:
    status, _, message = kctl("users", *arguments, password="x")
    assert status == 2
    assert reason in message


def test_users_exist_before_the_first_broker_starts(tmp_path: Path) -> None:
    """The ensemble is empty: no znode that a broker would create exists."""
    with embedded_zookeeper(tmp_path / "zookeeper") as server:
        where = ["--zookeeper", server.connect]
        assert kctl("users", "list", *where)[1] == []
        assert kctl("users", "create", "admin", *where, password=PASSWORD)[0] == 0
        assert [row["user"] for row in kctl("users", "list", *where)[1]] == ["admin"]
