"""Passwords that kctl encrypts are decrypted by Kafka, and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.security.password_encoder import PasswordEncoder
from tests.peers.apache_kafka import OLDEST_JUDGE, run_java_tool, why_not

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("KafkaPasswords.java")
PASSWORDS = (
    "secret",
    "a",
    "exactly-16-bytes",
    "with, comma: and\nlines",
    "pässwörd",
    "名前",
    "\U0001f511 key",
    "x" * 5000,
)
SECRETS = ("encoder-secret", "geheim ü")


def test_passwords_of_both_are_understood_by_both() -> None:
    if reason := why_not():
        pytest.skip(reason)
    cases = [(secret, bits, password) for secret in SECRETS for bits in (128, 256) for password in PASSWORDS]
    lines = []
    for secret, bits, password in cases:
        ours = PasswordEncoder(secret=secret, key_bits=bits).encode(password)
        lines.append(f"decode {secret.encode().hex()} {bits} {ours.encode().hex()}")
        lines.append(f"encode {secret.encode().hex()} {bits} {password.encode().hex()}")
    completed = run_java_tool(OLDEST_JUDGE, str(PROGRAM), [], stdin="\n".join(lines) + "\n", timeout_s=120)
    responses = [bytes.fromhex(line).decode() for line in completed.stdout.split("\n")[:-1]]
    assert len(responses) == 2 * len(cases), completed.stderr
    assert responses[::2] == [password for _, _, password in cases]
    decoded = [PasswordEncoder(secret=case[0]).decode(text) for case, text in zip(cases, responses[1::2], strict=True)]
    assert decoded == [password for _, _, password in cases]
