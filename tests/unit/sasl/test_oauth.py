"""OAUTHBEARER: accepted tokens, reading of keys, and invalid settings at start."""

from __future__ import annotations

import asyncio
import base64
import hmac
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from kctl.errors import ConfigError
from kctl.security.sasl import OAUTHBEARER_MESSAGE_BYTES_MAX, OAuthBearerError, parse_oauthbearer
from kctl.server.security.sasl.exchanges import AuthenticationRefused
from kctl.server.security.sasl.json_web_keys import (
    JWKS_BYTES_MAX,
    JsonWebKeys,
    KeysUnreadable,
    Refresh,
    check_url,
    parse_keys,
    read_keys,
)
from kctl.server.security.sasl.oauth import OAuthBearerExchange, TokenInvalid, TokenRules, TokenVerifier
from tests.peers.json_web_tokens import AUDIENCE, ISSUER, Issuer
from tests.rows import for_rows

REFRESH = Refresh(interval_ms=3_600_000, retry_ms=100, retry_ms_max=10_000)
ISSUING = Issuer()
OTHER = Issuer()
NOW_MS = 1_900_000_000_000
NOW_S = NOW_MS // 1000


def keys_of(url: str) -> JsonWebKeys:
    keys = JsonWebKeys(url, REFRESH, lambda: 0)

    async def read() -> None:
        await keys.start()
        await keys.close()

    asyncio.run(read())
    return keys


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> JsonWebKeys:
    return keys_of(ISSUING.write_key_set(tmp_path_factory.mktemp("keys") / "keys.json"))


def verifier(keys: JsonWebKeys, **changes: Any) -> TokenVerifier:
    rules = {
        "issuer": ISSUER,
        "audiences": (AUDIENCE, "other"),
        "clock_skew_s": 30,
        "subject_claim": "sub",
        "scope_claim": "scope",
    }
    return TokenVerifier(keys, TokenRules(**{**rules, **changes}), lambda: NOW_MS)


def token(issuer: Issuer = ISSUING, **claims: Any) -> str:
    return issuer.token(**{"iat": NOW_S, "exp": NOW_S + 600, **claims})


def unsigned(header: dict[str, Any], **claims: Any) -> str:
    """A token without a signature."""
    payload = jwt.decode(token(**claims), options={"verify_signature": False})
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, payload))
    return ".".join(parts) + "."


def test_a_valid_token_names_its_subject_and_its_end(keys: JsonWebKeys) -> None:
    subject = verifier(keys).verify(token(subject="alice"))
    assert (subject.name, subject.expiry_ms) == ("alice", (NOW_S + 600) * 1000)


@for_rows(
    "claims",
    [
        {"exp": NOW_S + 1},
        {"exp": NOW_S - 29},
        {"nbf": NOW_S + 29},
        {"aud": ["x", "other"]},
        {"scope": ["a", "b"]},
        {"scope": None},
        {"iat": None},
    ],
)
def test_valid_claims_are_accepted(keys: JsonWebKeys, claims: dict[str, Any]) -> None:
    assert verifier(keys).verify(token(**claims)).name == "oauth-user"


@for_rows(
    "claims",
    [
        {"exp": NOW_S - 31},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"exp": 1e300},
        {"nbf": NOW_S + 31},
        {"iat": NOW_S + 31},
        {"iss": "https://elsewhere.test"},
        {"iss": None},
        {"aud": "elsewhere"},
        {"aud": None},
        {"aud": []},
        {"subject": None},
        {"subject": ""},
        {"subject": "x" * 1_001},
        {"subject": "\ud800"},
        {"scope": 5},
    ],
)
def test_invalid_claims_are_refused(keys: JsonWebKeys, claims: dict[str, Any]) -> None:
    """CVE-2026-33557: another issuer, another audience, an expired token."""
    with pytest.raises(TokenInvalid):
        verifier(keys).verify(token(**claims))


def test_forged_tokens_are_refused(keys: JsonWebKeys) -> None:
    """CVE-2026-33557, CVE-2026-110985: no signature, a signature with the public key as a secret, another key."""
    secret = unsigned({"alg": "HS256", "kid": ISSUING.key_id})
    signed = hmac.digest(ISSUING.key_set(), secret.removesuffix(".").encode(), "sha256")
    secret += base64.urlsafe_b64encode(signed).rstrip(b"=").decode()
    header, payload, signature = token().split(".")
    other_payload = token(subject="admin").split(".")[1]
    forged = [
        unsigned({"alg": "none", "kid": ISSUING.key_id}),
        unsigned({"alg": "None", "kid": ISSUING.key_id}),
        unsigned({"alg": "RS256", "kid": ISSUING.key_id}),
        unsigned({"alg": "none"}),
        unsigned({"kid": ISSUING.key_id}),
        unsigned({"alg": "RS256", "kid": ["a"]}),
        unsigned({"alg": "RS256", "kid": ISSUING.key_id, "crit": ["x"]}),
        secret,
        token(OTHER),
        f"{header}.{other_payload}.{signature}",
        f"{header}.{payload}.",
        f"{header}.{payload}",
        "",
        "..",
        "a.b.c",
        "é.é.é",
        "[" * 50_000,
    ]
    for each in forged:
        with pytest.raises(TokenInvalid):
            verifier(keys).verify(each)


def test_other_claims_can_name_the_subject(keys: JsonWebKeys) -> None:
    assert verifier(keys, subject_claim="client_id").verify(token(client_id="app")).name == "app"


def message(text: str, authorization_id: str = "") -> bytes:
    header = f"n,a={authorization_id}," if authorization_id else "n,,"
    return f"{header}\x01auth=Bearer {text}\x01extension=value\x01\x01".encode()


def test_an_exchange_with_a_valid_token(keys: JsonWebKeys) -> None:
    exchange = OAuthBearerExchange(verifier(keys), lambda: NOW_MS)
    response = exchange.respond(message(token(subject="alice"), "alice"))
    assert response.token == b""
    assert response.identity is not None
    assert (response.identity.principal, response.identity.lifetime_ms) == ("User:alice", 600_000)


def test_an_exchange_with_an_invalid_token_ends_after_the_acknowledgement(keys: JsonWebKeys) -> None:
    exchange = OAuthBearerExchange(verifier(keys), lambda: NOW_MS)
    response = exchange.respond(message(token(OTHER)))
    assert (response.token, response.identity) == (b'{"status":"invalid_token"}', None)
    with pytest.raises(AuthenticationRefused) as refused:
        exchange.respond(b"\x01")
    assert refused.value.message == '{"status":"invalid_token"}'


def test_a_second_token_after_an_invalid_one_is_refused(keys: JsonWebKeys) -> None:
    exchange = OAuthBearerExchange(verifier(keys), lambda: NOW_MS)
    exchange.respond(message(token(OTHER)))
    with pytest.raises(AuthenticationRefused):
        exchange.respond(message(token()))


def test_an_authorization_id_has_to_be_the_subject(keys: JsonWebKeys) -> None:
    """CVE-2017-12610: the id of another user was accepted."""
    with pytest.raises(AuthenticationRefused):
        OAuthBearerExchange(verifier(keys), lambda: NOW_MS).respond(message(token(subject="alice"), "admin"))


@for_rows(
    "text",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01more",
        b"\xff",
        b"n,,\x01auth=Bearer " + b"x" * OAUTHBEARER_MESSAGE_BYTES_MAX + b"\x01\x01",
    ],
)
def test_malformed_messages_are_refused(text: bytes) -> None:
    with pytest.raises(OAuthBearerError):
        parse_oauthbearer(text)


@given(st.binary(max_size=100) | st.from_regex(r"n,(a=[a-z=]*)?,\x01([a-z]*=[A-Za-z .]*\x01)*\x01?").map(str.encode))
def test_parsing_raises_nothing_else(text: bytes) -> None:
    try:
        parse_oauthbearer(text)
    except OAuthBearerError as error:
        assert str(error)  # noqa: PT017 - any other exception fails the test


@for_rows(
    "url",
    ["", "keys.json", "http://issuer.test/keys", "ftp://issuer.test/keys", "https://", "file://host/keys", "data:,x"],
)
def test_addresses_that_are_refused_at_start(url: str) -> None:
    with pytest.raises(ConfigError):
        check_url(url)


@pytest.mark.parametrize(
    "url", ["https://issuer.test/keys", "http://127.0.0.1:1/keys", "http://[::1]/keys", "file:///keys", "file:/keys"]
)
def test_key_set_addresses_are_accepted(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize("scheme", ["http", "https", "ftp"])
def test_an_address_with_a_password_is_refused_without_showing_it(scheme: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_url(f"{scheme}://user:hunter2@issuer.test/keys?secret=hunter2")
    assert "hunter2" not in str(raised.value)


@for_rows(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": 1}',
        b'{"keys": []}',
        b'{"keys": [1, null, {}]}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"}]}',
        b'{"keys": [{"kty": "RSA", "n": "AQAB"}]}',
        json.dumps({"keys": [{}] * 1_001}).encode(),
        b"[" * 100_000,
    ],
)
def test_key_sets_without_a_usable_public_key(data: bytes) -> None:
    with pytest.raises(KeysUnreadable):
        parse_keys(data)


def test_keys_for_encryption_are_not_used() -> None:
    written = json.loads(ISSUING.key_set())
    written["keys"][0]["use"] = "enc"
    with pytest.raises(KeysUnreadable):
        parse_keys(json.dumps(written).encode())


def test_a_key_without_an_algorithm_serves_all_of_its_type() -> None:
    written = json.loads(ISSUING.key_set())
    del written["keys"][0]["alg"]
    found = parse_keys(json.dumps(written).encode())
    assert set(found[ISSUING.key_id]) == {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}


def test_keys_of_different_types_may_have_the_same_id() -> None:
    curve = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    written = json.loads(ISSUING.key_set())
    written["keys"].append({**curve, "kid": ISSUING.key_id})
    assert set(parse_keys(json.dumps(written).encode())[ISSUING.key_id]) == {"RS256", "ES256"}


def test_rsa_keys_of_fewer_than_2048_bits_are_not_used() -> None:
    """RFC 7518 forbids them: their signatures can be forged."""
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    written = {**RSAAlgorithm.to_jwk(short.public_key(), as_dict=True), "kid": "short"}
    with pytest.raises(KeysUnreadable, match="2048 bits"):
        parse_keys(json.dumps({"keys": [written]}).encode())


def test_a_file_that_cannot_be_used_is_refused_at_start(tmp_path: Path) -> None:
    missing = (tmp_path / "missing.json").as_uri()
    with pytest.raises(ConfigError, match="jwks"):
        keys_of(missing)


class _KeyServer(http.server.BaseHTTPRequestHandler):
    documents: ClassVar[dict[str, tuple[int, bytes]]] = {}

    def do_GET(self) -> None:  # the name that http.server calls
        status, body = self.documents.get(self.path, (404, b""))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/keys")
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            return

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture(scope="module")
def key_server() -> Iterator[str]:
    _KeyServer.documents = {
        "/keys": (200, ISSUING.key_set()),
        "/redirect": (302, b""),
        "/large": (200, b" " * (JWKS_BYTES_MAX + 1)),
        "/page": (200, b"<html>"),
    }
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _KeyServer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_keys_are_fetched(key_server: str) -> None:
    assert set(read_keys(f"{key_server}/keys")) == {ISSUING.key_id}


@pytest.mark.parametrize("path", ["/redirect", "/large", "/page", "/missing"])
def test_responses_that_are_no_keys(key_server: str, path: str) -> None:
    """A redirect is not followed: it could lead to an address that is refused."""
    with pytest.raises(KeysUnreadable):
        read_keys(key_server + path)


def test_no_token_is_accepted_until_the_address_of_the_keys_responds() -> None:
    keys = keys_of("http://127.0.0.1:1/keys")
    with pytest.raises(TokenInvalid):
        verifier(keys).verify(token())


def test_an_unknown_key_id_causes_one_read_in_ten_seconds(key_server: str) -> None:
    now_ms = 0
    keys = JsonWebKeys(f"{key_server}/keys", REFRESH, lambda: now_ms)
    for number in range(3):
        assert keys.key(f"unknown-{number}", "RS256") is None
        assert keys._read_now.is_set() is (number == 0)
        keys._read_now.clear()
    now_ms = 10_000
    keys.key("unknown", "RS256")
    assert keys._read_now.is_set()
