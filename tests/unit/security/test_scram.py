"""SCRAM exchanges against the examples of the RFCs, against each other, and against hostile peers."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.limits import SCRAM_ITERATIONS_MAX
from kctl.security.scram import (
    SCRAM_MESSAGE_BYTES_MAX,
    Mechanism,
    Phase,
    ScramClient,
    ScramCredential,
    ScramError,
    ScramServer,
    credential_of_password,
    credential_text,
    escaped,
    parse_client_final,
    parse_client_first,
    parse_credential,
    parse_server_final,
    parse_server_first,
    unescaped,
)
from tests.rows import for_rows

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
SALT = b"a salt of sixtee"
CREDENTIALS = {
    mechanism: credential_of_password(mechanism, "pencil", salt=SALT, iterations=4096) for mechanism in Mechanism
}

EXAMPLES = {
    # RFC 7677, section 3.
    SHA_256: (
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
    # draft-melnikov-scram-sha-512, section 3.
    SHA_512: (
        "rOprNGfwEbeRWgbNEkqO",
        "02431b08-2f89-4bad-a4e6-80c0564ec865",
        "Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=",
        "Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A==",
        "BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw==",
    ),
}


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_both_ends_send_the_bytes_of_the_published_example(mechanism: Mechanism) -> None:
    client_nonce, server_nonce, salt, proof, signature = EXAMPLES[mechanism]
    credential = credential_of_password(mechanism, "pencil", salt=base64.b64decode(salt), iterations=4096)
    client = ScramClient(mechanism, user="user", password="pencil", nonce=client_nonce)
    server = ScramServer(mechanism, nonce=server_nonce, lookup=lambda name, is_token: credential)

    client_first = client.first()
    server_first = server.respond(client_first)
    client_final = client.respond(server_first)
    assert client_final is not None
    server_final = server.respond(client_final)

    nonce = client_nonce + server_nonce
    assert client_first.decode() == f"n,,n=user,r={client_nonce}"
    assert server_first.decode() == f"r={nonce},s={salt},i=4096"
    assert client_final.decode() == f"c=biws,r={nonce},p={proof}"
    assert server_final.decode() == f"v={signature}"
    assert client.respond(server_final) is None
    assert (client.phase, server.phase) == (Phase.COMPLETE, Phase.COMPLETE)


def exchange(client: ScramClient, server: ScramServer) -> None:
    final = client.respond(server.respond(client.first()))
    assert final is not None
    client.respond(server.respond(final))


@for_rows("mechanism", list(Mechanism))
@for_rows("user", ["alice", "a,b=c", "=2C", "grüße 漢字", "x" * 500])
@for_rows("is_token", [False, True])
def test_the_server_has_name_and_kind_of_the_client(mechanism: Mechanism, user: str, is_token: bool) -> None:
    requested: list[tuple[str, bool]] = []

    def lookup(name: str, is_token: bool) -> ScramCredential:
        requested.append((name, is_token))
        return CREDENTIALS[mechanism]

    server = ScramServer(mechanism, nonce="server", lookup=lookup)
    exchange(ScramClient(mechanism, user=user, password="pencil", nonce="client", is_token=is_token), server)
    assert requested == [(user, is_token)]
    assert (server.user, server.is_token, server.phase) == (user, is_token, Phase.COMPLETE)


def server_of(mechanism: Mechanism = SHA_256) -> ScramServer:
    return ScramServer(mechanism, nonce="server", lookup=lambda name, is_token: CREDENTIALS[mechanism])


def test_a_wrong_password_is_refused_and_ends_the_exchange() -> None:
    client, server = ScramClient(SHA_256, user="u", password="pen", nonce="c"), server_of()
    final = client.respond(server.respond(client.first()))
    assert final is not None
    with pytest.raises(ScramError, match="the proof is wrong"):
        server.respond(final)
    assert server.phase is Phase.FAILED
    with pytest.raises(ScramError, match="after the end"):
        server.respond(final)


def final_of(server: ScramServer, first: bytes = b"n,,n=u,r=c") -> bytes:
    """A correct client-final for a client-first."""
    client = ScramClient(SHA_256, user="u", password="pencil", nonce="c")
    client.first()
    final = client.respond(server.respond(first))
    assert final is not None
    return final


def test_client_final_may_repeat_the_part_of_the_client_in_its_nonce() -> None:
    """librdkafka before 2.6.1 (kcat of Debian 12, confluent-kafka until 2.6.0) computes its proof over such a nonce."""
    server, credential = server_of(), CREDENTIALS[SHA_256]
    first = b"n,,n=u,r=c"
    server_first = server.respond(first).decode()
    unsigned = "c=biws,r=ccserver"
    signed = f"{first.decode().removeprefix('n,,')},{server_first},{unsigned}".encode()
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, credential.iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    proof = bytes(a ^ b for a, b in zip(key, hmac.digest(credential.stored_key, signed, "sha256"), strict=True))

    server.respond(f"{unsigned},p={base64.b64encode(proof).decode()}".encode())

    assert server.phase is Phase.COMPLETE


@for_rows("nonce", [b"cserveR", b"xserver", b"c", b"server", b"otherclientserver", b"cccserver", b"cc"])
def test_client_final_with_another_nonce_is_refused(nonce: bytes) -> None:
    """CVE-2024-56128: Kafka did not compare the nonce."""
    server = server_of()
    final = final_of(server)
    with pytest.raises(ScramError, match="another nonce"):
        server.respond(final.replace(b"r=cserver", b"r=" + nonce))


def test_client_final_with_another_channel_binding_is_refused() -> None:
    server = server_of()
    final = final_of(server)
    with pytest.raises(ScramError, match="another channel binding"):
        server.respond(final.replace(b"c=biws", b"c=eSws"))


@pytest.mark.parametrize("proof", ["", "AAAA", "A" * 44, "A" * 88])
def test_a_proof_of_another_size_or_of_zeros_is_refused(proof: str) -> None:
    server = server_of()
    final = final_of(server).decode()
    with pytest.raises(ScramError):
        server.respond(f"{final.rpartition('p=')[0]}p={proof}".encode())


def test_an_authorization_id_has_to_be_the_user() -> None:
    """CVE-2017-12610."""
    with pytest.raises(ScramError, match="authorization id"):
        server_of().respond(b"n,a=admin,n=u,r=c")
    assert server_of().respond(b"n,a=u,n=u,r=c").startswith(b"r=cserver,")


def test_the_client_refuses_a_server_without_the_credential() -> None:
    client, server = ScramClient(SHA_256, user="u", password="pencil", nonce="c"), server_of()
    client.respond(server.respond(client.first()))
    with pytest.raises(ScramError, match="signature is wrong"):
        client.respond(b"v=" + base64.b64encode(bytes(32)))
    assert client.phase is Phase.FAILED


@for_rows(
    "response, reason",
    [
        (b"r=c,s=QUFB,i=4096", "does not continue"),
        (b"r=xserver,s=QUFB,i=4096", "does not continue"),
        (b"r=cserver,s=QUFB,i=4095", "iterations"),
        (b"r=cserver,s=QUFB,i=%d" % (SCRAM_ITERATIONS_MAX + 1), "iterations"),
        (b"r=cserver,s=QUFB,i=99999999999999999999", "malformed"),
        (b"r=cserver,s=QUFB,i=-4096", "malformed"),
        (b"m=x,r=cserver,s=QUFB,i=4096", "malformed"),
        (b"r=cserver,s=,i=4096", "malformed"),
        (b"e=unknown-user", "malformed"),
        (b"", "malformed"),
        (b"\xff", "UTF-8"),
        (b"r=" + b"c" * SCRAM_MESSAGE_BYTES_MAX + b",s=QUFB,i=4096", "limit"),
    ],
)
def test_the_client_refuses_invalid_messages_before_it_hashes(response: bytes, reason: str) -> None:
    """CVE-2026-10143: a count of iterations that would take hours."""
    client = ScramClient(SHA_256, user="u", password="pencil", nonce="c")
    client.first()
    with pytest.raises(ScramError, match=reason):
        client.respond(response)
    assert client.phase is Phase.FAILED


@for_rows(
    "message",
    [
        b"",
        b"n,,",
        b"p=tls-unique,,n=u,r=c",
        b"n,,n=,r=c",
        b"n,,n=u",
        b"n,,n=u,r=",
        b"n,,r=c,n=u",
        b"n,,m=x,n=u,r=c",
        b"n,,n=a=b,r=c",
        b"n,,n=a=2,r=c",
        b"n,,n=u\x00,r=c",
        b"n,,n=u,r=c\n",
        b"n,,n=u,r=c d",
        b"n,,n=u,r=c,tokenauth",
        b"n,,n=u,r=c,",
        b"n,,n=\xff,r=c",
        b"n,,n=" + b"u" * SCRAM_MESSAGE_BYTES_MAX + b",r=c",
    ],
)
def test_the_server_refuses_malformed_first_messages(message: bytes) -> None:
    server = server_of()
    with pytest.raises(ScramError):
        server.respond(message)
    assert server.phase is Phase.FAILED


@pytest.mark.parametrize("parse", [parse_client_first, parse_client_final, parse_server_first, parse_server_final])
@given(message=st.binary(max_size=200) | st.from_regex(r"([nyp],,)?([a-z]=[A-Za-z0-9+/=]*,?){0,6}").map(str.encode))
def test_parsers_raise_nothing_but_scram_errors(parse: object, message: bytes) -> None:
    assert callable(parse)
    with contextlib.suppress(ScramError):
        parse(message)


@given(st.text())
def test_escaping_is_reversible_and_leaves_no_comma_or_lone_equals_sign(name: str) -> None:
    text = escaped(name)
    assert unescaped(text) == name
    assert "," not in text
    assert "=" not in text.replace("=2C", "").replace("=3D", "")


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_a_credential_survives_its_text(mechanism: Mechanism) -> None:
    assert parse_credential(mechanism, credential_text(CREDENTIALS[mechanism])) == CREDENTIALS[mechanism]


@for_rows(
    "old, new, reason",
    [
        ("iterations=4096", "iterations=4095", "iterations"),
        ("iterations=4096", "iterations=99999999999999999999", "iterations"),
        ("iterations=4096", "iterations=x", "iterations"),
        (",iterations=4096", "", "does not consist of"),
        ("salt=", "salt=!", "salt of the credential is not base64"),
        ("stored_key=", "stored_key=AAAA", "stored_key of the credential has 35 bytes, not 32"),
        ("server_key=", "other_key=", "does not consist of"),
    ],
)
def test_a_malformed_credential_is_refused_with_a_reason_and_without_its_text(old: str, new: str, reason: str) -> None:
    text = credential_text(CREDENTIALS[SHA_256])
    with pytest.raises(ScramError, match=reason) as raised:
        parse_credential(SHA_256, text.replace(old, new))
    assert text[5:15] not in str(raised.value)


def test_secrets_are_not_in_any_repr() -> None:
    client, server = ScramClient(SHA_256, user="u", password="pencil", nonce="c"), server_of()
    exchange(client, server)
    first, _ = parse_server_first(b"r=cserver,s=QUFB,i=4096")
    final, _ = parse_client_final(b"c=biws,r=cserver,p=QUFB")
    shown = repr((client, server, CREDENTIALS, first, final))
    for secret in ("pencil", "AAA", str(SALT), "cserver"):
        assert secret not in shown
