"""TLS and SASL on both transports, against a broker with real handshakes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.server
import json
import pickle
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.connections.login.sasl_settings import sasl_settings
from kctl.client.connections.login.tokens import TokenSource, unsecured_token
from kctl.client.connections.security import ClientSecurity
from kctl.client.connections.transport import Transport
from kctl.client.settings import ClientSettings
from kctl.errors import AuthenticationFailed, ClusterUnreachable, ConfigError
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from kctl.security.tls import TlsSettings, server_context
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.rows import for_rows
from tests.unit.client.secure_cluster import SaslSession, SecureCluster, jwt

T = TypeVar("T")
Run = Callable[[Callable[[Transport], Coroutine[Any, Any, T]]], T]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = 'correct "horse"\\battery'
QUOTED = SECRET.replace("\\", "\\\\").replace('"', '\\"')
HANDSHAKE_0 = {17: (0, 0)}


@pytest.fixture(params=["asyncio", "blocking"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Runs work on one of the transports."""
    if request.param == "asyncio":
        return lambda work: asyncio.run(work(AsyncioTransport()))
    return lambda work: run_blocking(work(BlockingTransport()))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("certificates"))


def context_of(authority: CertificateAuthority, **given: Any) -> ssl.SSLContext:
    """The context of a broker; `hosts` and `valid_days` are for the certificate, the others for the settings."""
    of_certificate = {name: given.pop(name) for name in ("hosts", "valid_days") if name in given}
    identity = authority.issue("broker", **of_certificate)
    if "valid_days" in of_certificate:  # The broker's own checks refuse such a certificate.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.pem)
        return context
    return server_context(
        TlsSettings(keystore_location=str(identity.pem), truststore_location=str(authority.pem), **given)
    )


def jaas(module: str, **options: str) -> dict[str, str]:
    given = " ".join(f'{name}="{value}"' for name, value in options.items())
    return {"sasl.jaas.config": f"{module} required {given};"}


def sasl(mechanism: str, module: str, **options: str) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, **jaas(module, **options)}


def topics_of(run: Run[Any], settings: ClientSettings, *, times: int = 1) -> list[str]:
    """The topics that are listed for a client."""

    async def work(transport: Transport) -> list[str]:
        async with ClusterClient(settings, transport) as client:
            for _ in range(times):
                metadata = await client.metadata()
            return sorted(metadata.topics)

    found: list[str] = run(work)
    return found


@contextlib.contextmanager
def serving(cluster: SecureCluster) -> Iterator[SecureCluster]:
    with cluster:
        cluster.create("orders")
        yield cluster


# TLS


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_client_reads_metadata_over_tls(run: Run[Any], authority: CertificateAuthority, version: str) -> None:
    with serving(SecureCluster(tls=context_of(authority, enabled_protocols=(version,)))) as cluster:
        properties = {"ssl.truststore.location": str(authority.pem)}
        assert topics_of(run, cluster.settings_with("SSL", properties)) == ["orders"]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_client_certificate_is_presented(run: Run[Any], authority: CertificateAuthority, version: str) -> None:
    tls = context_of(authority, enabled_protocols=(version,), client_auth="required")
    with serving(SecureCluster(tls=tls)) as cluster:
        trust = {"ssl.truststore.location": str(authority.pem)}
        own = {"ssl.keystore.location": str(authority.issue("client").pkcs12), "ssl.keystore.password": PASSWORD}
        assert topics_of(run, cluster.settings_with("SSL", {**trust, **own})) == ["orders"]
        with pytest.raises((AuthenticationFailed, ClusterUnreachable), match=r"ssl\.keystore\.location"):
            topics_of(run, cluster.settings_with("SSL", trust))


@pytest.mark.parametrize(
    ("broker", "trusted", "problem"),
    [
        ({"hosts": ["kafka.example.com"]}, True, r"another host name.*ssl\.endpoint\.identification\.algorithm"),
        ({"valid_days": (-10, -1)}, True, "has expired"),
        ({"valid_days": (1, 10)}, True, "is not valid yet"),
        ({}, False, r"is not trusted.*ssl\.truststore\.location"),
    ],
)
def test_wrong_certificate_fails_at_once_with_the_cause(
    run: Run[Any], authority: CertificateAuthority, tmp_path: Path, broker: dict[str, Any], trusted: bool, problem: str
) -> None:
    trust = authority if trusted else CertificateAuthority.create(tmp_path)
    with serving(SecureCluster(tls=context_of(authority, **broker))) as cluster:
        settings = cluster.settings_with("SSL", {"ssl.truststore.location": str(trust.pem)})
        with pytest.raises(AuthenticationFailed, match=rf"localhost:{cluster.ports[0]}: .*{problem}"):
            topics_of(run, settings)


def test_name_that_only_a_reverse_look_up_returns_is_refused(run: Run[Any], authority: CertificateAuthority) -> None:
    """CVE-2026-24281: ZooKeeper's client fell back to the reverse look-up of the address."""
    with serving(SecureCluster(tls=context_of(authority, hosts=["localhost"]))) as cluster:
        settings = cluster.settings_with("SSL", {"ssl.truststore.location": str(authority.pem)})
        assert topics_of(run, settings) == ["orders"]
        with pytest.raises(AuthenticationFailed, match="another IP address"):
            topics_of(run, settings._replace(bootstrap=(("127.0.0.1", cluster.ports[0]),)))


def test_host_name_check_can_be_switched_off(run: Run[Any], authority: CertificateAuthority) -> None:
    with serving(SecureCluster(tls=context_of(authority, hosts=["kafka.example.com"]))) as cluster:
        properties = {
            "ssl.truststore.location": str(authority.pem),
            "ssl.endpoint.identification.algorithm": "",
        }
        assert topics_of(run, cluster.settings_with("SSL", properties)) == ["orders"]


def test_tls_versions_without_overlap_are_named(run: Run[Any], authority: CertificateAuthority) -> None:
    with serving(SecureCluster(tls=context_of(authority, enabled_protocols=("TLSv1.2",)))) as cluster:
        properties = {"ssl.truststore.location": str(authority.pem), "ssl.enabled.protocols": "TLSv1.3"}
        with pytest.raises(AuthenticationFailed, match=r"ssl\.enabled\.protocols"):
            topics_of(run, cluster.settings_with("SSL", properties))


def test_tls_listener_reached_without_tls_is_named(run: Run[Any], authority: CertificateAuthority) -> None:
    problem = pytest.raises((AuthenticationFailed, ClusterUnreachable), match=r"security\.protocol")
    with serving(SecureCluster(tls=context_of(authority))) as cluster, problem:
        topics_of(run, cluster.settings())


def test_plaintext_listener_reached_with_tls_is_named(run: Run[Any], authority: CertificateAuthority) -> None:
    with serving(SecureCluster()) as cluster:
        settings = cluster.settings_with("SSL", {"ssl.truststore.location": str(authority.pem)})
        with pytest.raises((AuthenticationFailed, ClusterUnreachable), match=r"set security\.protocol to PLAINTEXT"):
            topics_of(run, settings)


# SASL


@for_rows("versions", [None, HANDSHAKE_0])
@for_rows("mechanism, module", [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)])
def test_password_is_accepted_or_refused(
    run: Run[Any], mechanism: str, module: str, versions: dict[int, tuple[int, int]] | None
) -> None:
    with serving(SecureCluster(mechanisms=(mechanism,), users={"alice": SECRET}, versions=versions)) as cluster:
        right = sasl(mechanism, module, username="alice", password=QUOTED)
        assert topics_of(run, cluster.settings_with("SASL_PLAINTEXT", right)) == ["orders"]
        wrong = sasl(mechanism, module, username="alice", password="wrong-password")
        with pytest.raises(AuthenticationFailed, match=r"sasl\.jaas\.config") as caught:
            topics_of(run, cluster.settings_with("SASL_PLAINTEXT", wrong))
        assert "wrong-password" not in str(caught.value)
        assert len(cluster.sessions) == 2, "refused credentials are not tried again"


def test_sasl_authenticates_over_tls(run: Run[Any], authority: CertificateAuthority) -> None:
    cluster = SecureCluster(tls=context_of(authority), mechanisms=("SCRAM-SHA-256",), users={"alice": SECRET})
    with serving(cluster):
        properties = sasl("SCRAM-SHA-256", SCRAM, username="alice", password=QUOTED)
        properties["ssl.truststore.location"] = str(authority.pem)
        assert topics_of(run, cluster.settings_with("SASL_SSL", properties)) == ["orders"]


def test_mechanism_that_is_not_enabled_is_named_with_those_that_are(run: Run[Any]) -> None:
    with serving(SecureCluster(mechanisms=("SCRAM-SHA-512", "OAUTHBEARER"))) as cluster:
        properties = sasl("PLAIN", PLAIN, username="alice", password="x")
        with pytest.raises(AuthenticationFailed, match=r"does not enable PLAIN.*SCRAM-SHA-512, OAUTHBEARER"):
            topics_of(run, cluster.settings_with("SASL_PLAINTEXT", properties))


def test_client_without_sasl_gets_an_error_that_the_listener_requires_it(run: Run[Any]) -> None:
    with serving(SecureCluster(mechanisms=("PLAIN",))) as cluster:
        with pytest.raises(ClusterUnreachable, match=r"set security\.protocol to SASL_PLAINTEXT"):
            topics_of(run, cluster.settings())
        assert len(cluster.sessions) <= 2


def test_delegation_token_is_announced(run: Run[Any]) -> None:
    with serving(SecureCluster(mechanisms=("SCRAM-SHA-256",), users={"tokenId": "aG1hYw=="})) as cluster:
        properties = sasl("SCRAM-SHA-256", SCRAM, username="tokenId", password="aG1hYw==", tokenauth="true")
        assert topics_of(run, cluster.settings_with("SASL_PLAINTEXT", properties)) == ["orders"]
        assert b",tokenauth=true" in cluster.sessions[0].rounds[0]


def test_long_connection_authenticates_again_before_its_session_ends(run: Run[Any]) -> None:
    users = {"alice": SECRET}
    with serving(SecureCluster(mechanisms=("PLAIN",), users=users, session_lifetime_ms=1)) as cluster:
        properties = sasl("PLAIN", PLAIN, username="alice", password=QUOTED)
        assert topics_of(run, cluster.settings_with("SASL_PLAINTEXT", properties), times=3) == ["orders"]
        assert len(cluster.sessions) == 1
        assert len(cluster.sessions[0].rounds) > 1


def test_refused_reauthentication_ends_the_connection(run: Run[Any]) -> None:
    with serving(SecureCluster(mechanisms=("PLAIN",), users={"alice": SECRET}, session_lifetime_ms=1)) as cluster:

        def forget_user(_session: SaslSession, message: bytes) -> bytes:
            cluster.users.clear()
            return message

        cluster.sasl_response = forget_user
        properties = sasl("PLAIN", PLAIN, username="alice", password=QUOTED)
        with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
            topics_of(run, cluster.settings_with("SASL_PLAINTEXT", properties), times=3)


# Hostile brokers


def huge_iterations(_session: SaslSession, message: bytes) -> bytes:
    return message.replace(b"i=4096", b"i=2000000000")


def few_iterations(_session: SaslSession, message: bytes) -> bytes:
    return message.replace(b"i=4096", b"i=1")


def other_nonce(_session: SaslSession, message: bytes) -> bytes:
    return b"r=x" + message[2:] if message.startswith(b"r=") else message


def other_signature(_session: SaslSession, message: bytes) -> bytes:
    return b"v=" + b"A" * 43 + b"=" if message.startswith(b"v=") else message


def no_signature(_session: SaslSession, message: bytes) -> bytes:
    return b"" if message.startswith(b"v=") else message


def endless(session: SaslSession, message: bytes) -> bytes:
    session.scram = None
    return message if message.startswith(b"r=") else b""


def large(_session: SaslSession, _message: bytes) -> bytes:
    return b"r=" + b"x" * 900_000


def too_large(_session: SaslSession, _message: bytes) -> bytes:
    return bytes(2 << 20)


@for_rows("change", [huge_iterations, few_iterations, other_nonce, other_signature, no_signature, large, too_large])
@for_rows("versions", [None, HANDSHAKE_0])
def test_broker_that_breaks_scram_is_refused(
    run: Run[Any], change: Callable[[SaslSession, bytes], bytes], versions: dict[int, tuple[int, int]] | None
) -> None:
    with serving(SecureCluster(mechanisms=("SCRAM-SHA-256",), users={"alice": SECRET}, versions=versions)) as cluster:
        cluster.sasl_response = change
        properties = sasl("SCRAM-SHA-256", SCRAM, username="alice", password=QUOTED)
        with pytest.raises((AuthenticationFailed, ClusterUnreachable)) as caught:
            topics_of(run, cluster.settings_with("SASL_PLAINTEXT", properties))
        assert "orders" not in str(caught.value)
        assert len(cluster.requested(SaslAuthenticateRequest)) <= 2


def test_broker_that_drips_bytes_exceeds_the_one_deadline(run: Run[Any], authority: CertificateAuthority) -> None:
    """In the TLS handshake and in the SASL exchange: each byte arrives before the timeout, the last one after the
    deadline.
    """
    stop = threading.Event()

    def drip(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(struct.pack(">BHH", 22, 0x0303, 4_000))
                while not stop.wait(0.02):
                    connection.sendall(b"\2")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        settings = ClientSettings(
            (("127.0.0.1", listener.getsockname()[1]),),
            timeout_ms=600,
            connect_timeout_ms=300,
            security=ClientSecurity.of("SSL", {"ssl.truststore.location": str(authority.pem)}),
        )
        try:
            with pytest.raises(ClusterUnreachable, match="within 300 ms"):
                topics_of(run, settings)
        finally:
            stop.set()
            dripping.join(10)


# OAUTHBEARER


def bearer(**properties: str) -> dict[str, str]:
    return {"sasl.mechanism": "OAUTHBEARER", **{name.replace("_", "."): text for name, text in properties.items()}}


def test_token_of_a_file_is_read_for_each_authentication(run: Run[Any], tmp_path: Path) -> None:
    path = tmp_path / "token"
    with serving(SecureCluster(mechanisms=("OAUTHBEARER",), session_lifetime_ms=1)) as cluster:
        old, new = jwt({"sub": "alice"}), jwt({"sub": "alice", "v": 2})
        path.write_text(old + "\n")
        cluster.tokens = {old}

        def renew(_session: SaslSession, message: bytes) -> bytes:
            path.write_text(new)
            cluster.tokens = {new}
            return message

        cluster.sasl_response = renew
        properties = bearer() | {"sasl.oauthbearer.token.endpoint.url": f"file:{path}"}
        assert topics_of(run, cluster.settings_with("SASL_PLAINTEXT", properties), times=3) == ["orders"]


def test_refused_token_fails_with_the_reason_of_the_broker(run: Run[Any], tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(jwt({"sub": "mallory"}))
    with serving(SecureCluster(mechanisms=("OAUTHBEARER",))) as cluster:
        properties = bearer() | {"sasl.oauthbearer.token.endpoint.url": f"file:{path}"}
        with pytest.raises(AuthenticationFailed, match="invalid_token") as caught:
            topics_of(run, cluster.settings_with("SASL_PLAINTEXT", properties))
        assert path.read_text() not in str(caught.value)


class TokenEndpoint:
    """An HTTP server that issues tokens to one client.  A context manager."""

    def __init__(self, response: Callable[[http.server.BaseHTTPRequestHandler], None]) -> None:
        self.requests: list[tuple[str, str]] = []
        """(Authorization, body)"""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                body = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
                self.requests.append((handler.headers["Authorization"], body))
                with contextlib.suppress(OSError):
                    response(handler)

            def log_message(handler, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def properties(self) -> dict[str, str]:
        return bearer() | {
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{self.server.server_address[1]}/token",
            "sasl.oauthbearer.client.credentials.client.id": "kctl",
            "sasl.oauthbearer.client.credentials.client.secret": "s3cret",
            "sasl.oauthbearer.scope": "kafka",
        }

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join(10)
        self.server.server_close()


def respond_with(document: object, status: int = 200) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    def response(handler: http.server.BaseHTTPRequestHandler) -> None:
        body = json.dumps(document).encode() if not isinstance(document, bytes) else document
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return response


def test_token_of_an_endpoint_is_fetched_once_and_reused(run: Run[Any]) -> None:
    token = jwt({"sub": "kctl", "exp": time.time() + 300})
    with serving(SecureCluster(mechanisms=("OAUTHBEARER",), session_lifetime_ms=1)) as cluster:
        cluster.tokens = {token}
        with TokenEndpoint(respond_with({"access_token": token, "expires_in": 300})) as endpoint:
            settings = cluster.settings_with("SASL_PLAINTEXT", endpoint.properties)
            assert topics_of(run, settings, times=3) == ["orders"]
            assert endpoint.requests == [("Basic a2N0bDpzM2NyZXQ=", "grant_type=client_credentials&scope=kafka")]
        assert len(cluster.sessions[0].rounds) > 1


@pytest.mark.parametrize(("factor", "reused_s"), [(None, 80), ("0.5", 50)])
def test_a_token_is_fetched_again_after_the_part_of_its_lifetime_that_is_set(factor: str | None, reused_s: int) -> None:
    token = jwt({"sub": "kctl"})
    now_s = [1_000.0]
    with TokenEndpoint(respond_with({"access_token": token, "expires_in": 100})) as endpoint:
        more = {} if factor is None else {"sasl.login.refresh.window.factor": factor}
        settings = sasl_settings(endpoint.properties | {"sasl.mechanism": "OAUTHBEARER"} | more).oauth
        assert settings is not None
        source = TokenSource(settings, lambda: now_s[0])
        for passed_s, fetched in ((0, 1), (reused_s - 1, 1), (reused_s, 2)):
            now_s[0] = 1_000.0 + passed_s
            assert source.token(10_000) == token
            assert len(endpoint.requests) == fetched


@pytest.mark.parametrize("factor", ["0.4", "1.1", "nan", "most"])
def test_an_impossible_part_of_a_lifetime_is_refused(factor: str) -> None:
    with TokenEndpoint(respond_with({})) as endpoint, pytest.raises(ConfigError, match=r"between 0\.5 and 1\.0"):
        sasl_settings(
            endpoint.properties | {"sasl.mechanism": "OAUTHBEARER", "sasl.login.refresh.window.factor": factor}
        )


def redirect(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "http://127.0.0.1:1/")
    handler.end_headers()


def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(1_000):
        handler.wfile.write(b" ")
        threading.Event().wait(0.02)


@for_rows(
    "response, problem",
    [
        (respond_with({"error": "invalid_client"}, 401), "status 401, invalid_client"),
        (respond_with(b"x" * 400_000), "cannot be used|no access_token"),
        (respond_with({"access_token": "x" * 300_000}), "cannot be used|contains no token"),
        (respond_with({"access_token": "a\nb"}), "contains no token"),
        (respond_with([]), "no access_token"),
        (redirect, "status 302"),
        (drip, "did not respond in time"),
    ],
)
def test_bad_token_endpoint_fails_at_once(
    run: Run[Any], response: Callable[[http.server.BaseHTTPRequestHandler], None], problem: str
) -> None:
    with serving(SecureCluster(mechanisms=("OAUTHBEARER",))) as cluster, TokenEndpoint(response) as endpoint:
        # Only the endpoint that never ends its response needs a short time; others may be slow on a busy machine.
        properties = endpoint.properties | ({"sasl.login.read.timeout.ms": "200"} if response is drip else {})
        with pytest.raises(AuthenticationFailed, match=problem) as caught:
            topics_of(run, cluster.settings_with("SASL_PLAINTEXT", properties))
        assert "s3cret" not in str(caught.value)


def test_unsecured_token_has_the_claims_of_the_login_module(run: Run[Any]) -> None:
    with serving(SecureCluster(mechanisms=("OAUTHBEARER",))) as cluster:
        properties = sasl("OAUTHBEARER", OAUTH, unsecuredLoginStringClaim_sub="alice", extension_traceId="123") | {
            "sasl.login.callback.handler.class": "OAuthBearerUnsecuredLoginCallbackHandler"
        }
        with pytest.raises(AuthenticationFailed):
            topics_of(run, cluster.settings_with("SASL_PLAINTEXT", properties))
        first = cluster.sessions[0].rounds[0]
        assert first.startswith(b"n,,\x01auth=Bearer ")
        assert first.endswith(b".\x01traceId=123\x01\x01")


@pytest.mark.parametrize("now_s", [1_000.0, 1_000.0004, 1_000.9999])
def test_an_unsecured_token_is_issued_before_the_millisecond_in_which_it_is_made(now_s: float) -> None:
    claims = unsecured_token({"unsecuredLoginLifetimeSeconds": "60"}, now_s).split(".")[1]
    issued = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert 1000 * issued["iat"] <= int(1000 * now_s)
    assert issued == {"iat": 1_000, "exp": 1_060}


# Properties


@for_rows(
    "protocol, properties, name",
    [
        ("TLS", {}, "security.protocol"),
        ("SASL_SSL", {"sasl.mechanism": "LOGIN"}, "sasl.mechanism"),
        ("SASL_PLAINTEXT", {"sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        ("SASL_PLAINTEXT", sasl("PLAIN", SCRAM, username="a", password="hidden-1"), "sasl.jaas.config"),
        ("SASL_PLAINTEXT", sasl("PLAIN", PLAIN, user="a", password="hidden-1"), "sasl.jaas.config"),
        ("SASL_PLAINTEXT", {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "hidden-1"}, "sasl.jaas.config"),
        ("SASL_PLAINTEXT", {"sasl.mechanism": "GSSAPI"}, "sasl.kerberos.service.name"),
        ("SASL_PLAINTEXT", bearer(), "sasl.oauthbearer.token.endpoint.url"),
        (
            "SASL_PLAINTEXT",
            bearer() | jaas(OAUTH, unsecuredLoginStringClaim_sub="alice"),
            "sasl.login.callback.handler.class",
        ),
        (
            "SASL_PLAINTEXT",
            bearer() | {"sasl.oauthbearer.token.endpoint.url": "http://id.example.com/token"},
            "sasl.oauthbearer.token.endpoint.url",
        ),
        (
            "SASL_PLAINTEXT",
            bearer() | {"sasl.oauthbearer.token.endpoint.url": "https://u:hidden-1@id.example.com/"},
            "sasl.oauthbearer.token.endpoint.url",
        ),
        (
            "SASL_PLAINTEXT",
            bearer() | {"sasl.oauthbearer.token.endpoint.url": "https://id.example.com/"},
            "sasl.oauthbearer.client.credentials.client.id",
        ),
        (
            "SASL_PLAINTEXT",
            sasl("PLAIN", PLAIN, username="a", password="b") | {"sasl.client.callback.handler.class": "com.example.X"},
            "sasl.client.callback.handler.class",
        ),
        ("SSL", {"ssl.truststore.location": "/nowhere"}, "ssl.truststore.location"),
        ("SSL", {"ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols"),
    ],
)
def test_invalid_property_is_refused_by_its_name(protocol: str, properties: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")) as caught:
        ClientSecurity.of(protocol, properties)
    assert "hidden-1" not in str(caught.value)


def test_secrets_are_in_no_repr_and_survive_pickling(authority: CertificateAuthority) -> None:
    properties = sasl("SCRAM-SHA-256", SCRAM, username="alice", password="hidden-1") | {
        "ssl.truststore.location": str(authority.pem)
    }
    security = ClientSecurity.of("SASL_SSL", properties)
    settings = ClientSettings((("localhost", 9092),), security=security)
    assert "hidden-1" not in repr(settings)
    assert "hidden-1" not in repr(security.sasl_client("localhost", 1_000))
    again = pickle.loads(pickle.dumps(settings)).security
    assert (again.protocol, again.mechanism, again.uses_tls) == ("SASL_SSL", "SCRAM-SHA-256", True)
    assert again.sasl_client("localhost", 1_000).first().startswith(b"n,,n=alice,r=")


def test_client_without_security_imports_neither_ssl_nor_hashlib() -> None:
    """A command starts in a few tens of milliseconds; each of the two costs 10 to 20 more."""
    program = (
        "import sys, kctl.client.connections.blocking_transport, kctl.commands.frame.invocation; "
        "print(sorted({'ssl', '_hashlib', 'asyncio', 'cryptography'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
