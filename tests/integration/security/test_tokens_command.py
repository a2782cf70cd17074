"""`kctl tokens`, authenticated by SASL: a token logs in until it is removed."""

from __future__ import annotations

from pathlib import Path

from tests.integration.security.conftest import SCRAM_PASSWORD, SIMPLE_USER
from tests.integration.security.test_users_command import kctl
from tests.peers.sasl_broker import SaslBroker

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def client_properties(path: Path, broker: SaslBroker, user: str, password: str, *, is_token: bool = False) -> str:
    suffix = ' tokenauth="true"' if is_token else ""
    path.write_text(
        f"bootstrap.servers={broker.sasl}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={MODULE} required username="{user}" password="{password}"{suffix};\n'
    )
    return str(path)


def test_the_life_of_a_token(broker: SaslBroker, tmp_path: Path) -> None:
    own = ["--command-config", client_properties(tmp_path / "user", broker, SIMPLE_USER, SCRAM_PASSWORD)]
    status, (token,), _ = kctl("tokens", "create", "--renewer", "User:scheduler", "--max-lifetime", "1h", *own)
    assert (status, token["owner"], token["renewers"]) == (0, f"User:{SIMPLE_USER}", ["User:scheduler"])
    token_id, hmac = token["token_id"], token["hmac"]

    file = client_properties(tmp_path / "token", broker, token_id, hmac, is_token=True)
    assert kctl("topics", "list", "--command-config", file)[0] == 0
    status, _, message = kctl("tokens", "create", "--command-config", file)
    assert (status, "token" in message) == (1, True)

    described = kctl("tokens", "describe", "--owner", "User:scheduler", *own)[1]
    assert [row["token_id"] for row in described] == [token_id]
    assert "hmac" not in described[0]
    assert kctl("tokens", "describe", "--show-hmac", *own)[1][-1]["hmac"] == hmac
    assert kctl("tokens", "describe", "--owner", "User:nobody", *own)[1] == []

    (row,) = kctl("tokens", "renew", token_id, "--dry-run", *own)[1]
    assert (row["status"], row["expires"]) == ("would be renewed", token["expires"])
    (row,) = kctl("tokens", "expire", token_id, "--dry-run", *own)[1]
    assert (row["status"], row["expires"]) == ("would be removed", token["expires"])
    status, (row,), _ = kctl("tokens", "renew", token_id, "--period", "1d", *own)
    assert (status, row["expires"]) == (0, token["renewable_until"])
    assert kctl("tokens", "expire", token_id, *own)[0] == 5
    assert kctl("tokens", "expire", token_id, "--after", "30m", "--yes", *own)[1][0]["status"] == "changed"
    assert kctl("tokens", "expire", token_id, "--yes", *own)[1][0]["status"] == "removed"
    status, _, message = kctl("tokens", "renew", token_id, *own)
    assert (status, token_id in message) == (1, True)
    assert kctl("topics", "list", "--command-config", file)[0] != 0


def test_tokens_need_an_authenticated_client(broker: SaslBroker) -> None:
    status, _, message = kctl("tokens", "create", "--bootstrap-server", broker.plaintext)
    assert status == 1
    assert "token" in message.lower()
