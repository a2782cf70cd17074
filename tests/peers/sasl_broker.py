"""A kctl broker with a SASL listener for every mechanism, and users for each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.peers import probe
from tests.peers.json_web_tokens import AUDIENCE, ISSUER, Issuer
from tests.peers.kctl_broker import TEST_PROPERTIES, KctlBroker

ADMIN, ADMIN_PASSWORD = "admin", "admin-secret-7391"
PLAIN_PASSWORD = "plain;secret=7392"
TOKEN_KEY = "token-key-secret-7393"
MAX_REAUTH_MS = 2_000
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True)
class SaslBroker:
    """A started broker and the addresses of its listeners."""

    process: KctlBroker
    plaintext: str
    sasl: str
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER."""
    reauth: str
    """The listener with the same mechanisms, and sessions of MAX_REAUTH_MS."""
    issuer: Issuer


@contextlib.contextmanager
def sasl_broker(
    folder: Path,
    *,
    properties: Mapping[str, str] | None = None,
    zookeeper: str | None = None,
    run_by: Sequence[str] = (),
) -> Iterator[SaslBroker]:
    """A serving broker, started as by `kctl_broker`.  Its properties are in a file, because they are secret."""
    folder.mkdir(parents=True, exist_ok=True)
    issuer = Issuer()
    addresses = [f"127.0.0.1:{probe.free_port()}" for _ in range(3)]
    plaintext, sasl, reauth = addresses
    jaas = (
        f'{PLAIN_MODULE} required username="{ADMIN}" password="{ADMIN_PASSWORD}" '
        f'user_{ADMIN}="{ADMIN_PASSWORD}" user_alice="{PLAIN_PASSWORD}";'
    )
    written = {
        **TEST_PROPERTIES,
        "listeners": f"PLAINTEXT://{plaintext},SASL://{sasl},REAUTH://{reauth}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,REAUTH:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": jaas,
        "listener.name.reauth.plain.sasl.jaas.config": jaas,
        "listener.name.reauth.connections.max.reauth.ms": str(MAX_REAUTH_MS),
        "sasl.oauthbearer.jwks.endpoint.url": issuer.write_key_set(folder / "keys.json"),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "delegation.token.secret.key": TOKEN_KEY,
        **(properties or {}),
    }
    if zookeeper:
        written["zookeeper.connect"] = zookeeper
    plaintext = next(
        word.partition("://")[2] for word in written["listeners"].split(",") if word.startswith("PLAINTEXT:")
    )
    settings = folder / "server.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in written.items()))
    data_dir = folder / "data"
    words = ["broker", "start", "--config", str(settings), "--data-dir", str(data_dir)]
    broker = KctlBroker(words, plaintext, data_dir, run_by=run_by)
    try:
        yield SaslBroker(broker, plaintext, sasl, reauth, issuer)
    except BaseException:
        broker.kill9()
        raise
    broker.stop()
