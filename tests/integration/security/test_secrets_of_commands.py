"""Secrets in properties of clients, profiles and brokers are in no output of commands, tools for agents and bundles.

The commands authenticate, succeed and fail in many ways, and show tracebacks (--debug).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from kctl.config.broker import BROKER_PROPERTIES
from kctl.config.kinds import PASSWORD
from tests.peers.fork_server import ROOT
from tests.peers.forked_kctl import run_kctl
from tests.peers.sasl_broker import ADMIN, ADMIN_PASSWORD, PLAIN_MODULE, TOKEN_KEY, SaslBroker, sasl_broker

PLANTED = "secret-7397"
BROKER_SECRETS = {
    name: f"{PLANTED}-in-{name}"
    for name, described in BROKER_PROPERTIES.items()
    if described.kind is PASSWORD and name not in {"sasl.jaas.config", "delegation.token.secret.key"}
}
CLIENT_SECRETS = {
    name: f"{PLANTED}-of-client-in-{name}"
    for name in (
        "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.truststore.password",
        "basic.auth.user.info",
        "schema.registry.basic.auth.user.info",
        "my.plug-in.password",
        "my.plug-in.unknown",
    )
}
SECRETS = (PLANTED, base64.b64encode(PLANTED.encode()).decode()[:12], PLANTED.encode().hex(), ADMIN_PASSWORD, TOKEN_KEY)
COMMANDS = (
    "cluster describe",
    "configs describe broker 0 --all",
    "configs describe broker 0 --all --format json",
    "users list",
    "topics describe none",
    "tokens describe",
    "cluster api-versions",
    "acls list",
)
TOOLS: dict[str, dict[str, object]] = {
    "configs_describe": {"type": "broker", "names": ["0"], "all": True},
    "topics_describe": {"names": ["none"]},
    "no_such_tool": {"command_config": "/dev/null"},
}


@dataclass
class Planted:
    """A broker, and properties files of clients: of one that may connect, and of others that fail."""

    broker: SaslBroker
    working: Path
    failing: list[Path]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    folder = tmp_path_factory.mktemp("secrets")
    with sasl_broker(folder, properties=BROKER_SECRETS) as broker:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        oauth = login | {"sasl.mechanism": "OAUTHBEARER"}
        wrong = {
            "wrong password": login | {"sasl.jaas.config": jaas(f"{PLANTED}-wrong")},
            "unfinished login": login | {"sasl.jaas.config": jaas(PLANTED).rstrip('";')},
            "unknown login": login | {"sasl.jaas.config": f"{PLANTED} {PLANTED}={PLANTED}"},
            "no key store": {"security.protocol": "SSL", "ssl.keystore.location": "/nonexistent", **CLIENT_SECRETS},
            "no key": {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.key": PLANTED},
            "no token": oauth | {"sasl.jaas.config": f'x required clientSecret="{PLANTED}";'},
            "address": oauth | {"sasl.oauthbearer.token.endpoint.url": f"http://{PLANTED}@localhost/"},
        }
        working = written(
            folder / "client.properties", login | {"sasl.jaas.config": jaas(ADMIN_PASSWORD)} | CLIENT_SECRETS
        )
        failing = [written(folder / f"{name}.properties", properties) for name, properties in wrong.items()]
        yield Planted(broker, working, failing)


def jaas(password: str) -> str:
    return f'{PLAIN_MODULE} required username="{ADMIN}" password="{password}";'


def written(path: Path, properties: dict[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    path.chmod(0o600)
    return path


def assert_discloses_nothing(what: str, text: str) -> None:
    lines = [line[:300] for line in text.splitlines() if any(secret in line for secret in SECRETS)]
    assert lines == [], what


def test_commands_do_not_disclose_the_properties_of_their_client(planted: Planted) -> None:
    connection = ("--bootstrap-server", planted.broker.sasl, "--debug")
    statuses = set()
    for command in COMMANDS:
        ran = run_kctl(*command.split(), *connection, "--command-config", planted.working)
        statuses.add(ran.returncode)
        assert ran.returncode in {0, 1}, ran.stderr
        assert_discloses_nothing(command, ran.stdout + ran.stderr)
    for file in planted.failing:
        ran = run_kctl("cluster", "describe", *connection, "--command-config", file)
        assert ran.returncode not in {0, -1}, file
        assert_discloses_nothing(file.stem, ran.stdout + ran.stderr)
    assert statuses == {0, 1}


def test_profiles_do_not_disclose_their_properties(planted: Planted, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    for number, file in enumerate([planted.working, *planted.failing]):
        profile = f"p{number}"
        for words in (
            ("profile", "add", profile, "--bootstrap-server", planted.broker.sasl, "--command-config", file),
            ("profile", "show", profile),
            ("profile", "show", profile, "--format", "json"),
            ("profile", "list", "--format", "yaml"),
            ("cluster", "describe", "--profile", profile),
        ):
            ran = run_kctl(*words, "--debug", environment=environment)
            assert_discloses_nothing(f"{words} {file.stem}", ran.stdout + ran.stderr)
        assert (ran.returncode == 0) is (file is planted.working), file


def test_tools_for_agents_do_not_disclose_the_properties_of_their_client(planted: Planted) -> None:
    for file in (planted.working, planted.failing[0]):
        words = ["-m", "kctl", "mcp", "--bootstrap-server", planted.broker.sasl, "--command-config", str(file)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        server = StdioServerParameters(command=sys.executable, args=words, env=environment, cwd=ROOT)
        answers = asyncio.run(answers_of(server))
        assert_discloses_nothing(f"tools with {file.stem}", answers)
        assert ('"status": 0' in answers) is (file is planted.working)


async def answers_of(server: StdioServerParameters) -> str:
    """Everything that the server answers to TOOLS."""
    async with (
        asyncio.timeout(240),
        stdio_client(server) as (incoming, outgoing),
        ClientSession(incoming, outgoing) as session,
    ):
        texts = [repr(await session.initialize()), repr(await session.list_tools())]
        for name, arguments in TOOLS.items():
            result = await session.call_tool(name, arguments)
            texts += [repr(result), json.dumps(result.structured_content)]
        return "\n".join(texts)


def test_bundles_do_not_disclose_the_properties_of_the_broker(planted: Planted, tmp_path: Path) -> None:
    settings = planted.working.parent / "server.properties"
    log = tmp_path / "other.log"
    log.write_text(f"started with --password={PLANTED}\nsasl.jaas.config={jaas(ADMIN_PASSWORD)}\n")
    archive = tmp_path / "bundle.tar.gz"
    data_dir = planted.broker.process.data_dir
    ran = run_kctl("broker", "bundle", "--data-dir", data_dir, "--config", settings, "--log", log, "--output", archive)
    assert ran.returncode == 0, ran.stderr
    assert_discloses_nothing("output", ran.stdout + ran.stderr)
    with tarfile.open(archive) as members:
        texts = {member.name: members.extractfile(member).read().decode(errors="replace") for member in members}  # type: ignore[union-attr]
    assert any("other.log" in name for name in texts)
    for name, text in texts.items():
        assert_discloses_nothing(name, name + "\n" + text)
