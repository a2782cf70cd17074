"""Half a surrogate pair, which JSON can escape and UTF-8 cannot encode, is refused wherever names are read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from kctl.admin.groups.offsets import parse_document
from kctl.admin.placement.documents import parse_reassignment
from kctl.admin.records.deletion import parse_deletions
from kctl.admin.security.acls import read_document
from kctl.errors import UsageError
from kctl.output.documents import json_text, parse_json
from kctl.zookeeper import paths, security_znodes, znodes

HALF = "\ud800"
ACL = {"principal": f"User:{HALF}", "permissionType": "Allow", "operation": "Read", "host": "*"}
TOKEN = {"owner": "User:a", "renewers": [f"User:{HALF}"], "tokenId": "t"}
TIMES = {"issueTimestamp": 1, "maxTimestamp": 2, "expiryTimestamp": 2}
STORED_ACL = {
    "resource_type": "topic",
    "resource_name": "t",
    "principal": f"User:{HALF}",
    "operation": "read",
    "permission": "allow",
}


@pytest.mark.parametrize(
    ("decode", "znode"),
    [
        (security_znodes.decode_entries, {"acls": [ACL]}),
        (znodes.decode_config, {"config": {"retention.ms": HALF}}),
        (znodes.decode_config_change, {"entity_path": f"users/{HALF}"}),
        (security_znodes.decode_token, TOKEN | TIMES),
    ],
)
def test_znodes(decode: Callable[[str, bytes], object], znode: dict[str, object]) -> None:
    path = paths.delegation_token("t")
    with pytest.raises(ValueError, match=path):
        decode(path, json.dumps({"version": 1, **znode}).encode())


@pytest.mark.parametrize(
    ("read", "document"),
    [
        (lambda text: read_document(text.encode(), "f"), {"acls": [STORED_ACL]}),
        (parse_deletions, {"partitions": [{"topic": HALF, "partition": 0, "offset": 1}]}),
        (parse_document, {"groups": [{"group": HALF, "offsets": []}]}),
        (parse_reassignment, {"partitions": [{"topic": HALF, "partition": 0, "replicas": [1]}]}),
    ],
)
def test_documents(read: Callable[[str], object], document: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="unpaired surrogate"):
        read(json.dumps({"version": 1, **document}))


@pytest.mark.parametrize("text", [b'"\xed\xa0\x80"', b'{"\\uDFFF": 1}', '"\ud800"', b'["\\ud83d\\u0041"]'])
def test_values_that_are_not_text(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"surrogate|utf-8"):
        parse_json(text)


def test_characters_beyond_the_basic_plane_are_read() -> None:
    assert parse_json(b'{"a": "\\uD83D\\uDE00", "\xf0\x9f\x98\x80": "\\\\ud800"}') == {"a": "😀", "😀": "\\ud800"}


def test_infinite_numbers_and_nan_are_null_in_json() -> None:
    text = json_text({"a": math.inf, "b": [-math.inf, (math.nan, 1.5)], "c": {"d": math.nan}})
    assert text == '{"a":null,"b":[null,[null,1.5]],"c":{"d":null}}'
