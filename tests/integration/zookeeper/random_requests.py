"""Random requests of every kind that two servers with empty folders must serve alike, zxids included.

The requests depend on a seed and not on responses; `play` returns one line per request with everything in its response.
Only times of the clock and session ids are masked.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from tests.peers import zookeeper_wire as wire
from tests.peers.zookeeper_wire import Reply, WireClient

READ_ACL = ((1, "world", "anyone"),)
# base64(sha1("ann:secret")), which is how ZooKeeper names the user ann with the password secret.
ANN = "ann:7RJfAeIvrl4zdj6sS2fXrQHDvHM="
ACLS: tuple[wire.Acl | None, ...] = (
    wire.OPEN_ACL, wire.OPEN_ACL, wire.OPEN_ACL, wire.OPEN_ACL, wire.OPEN_ACL, READ_ACL,
    ((31, "digest", ANN),), ((31, "auth", ""),), ((31, "ip", "127.0.0.1"),), ((31, "ip", "10.0.0.0/8"),),
    ((1, "world", "anyone"), (31, "digest", ANN)), ((31, "world", "anyone"), (31, "world", "anyone")),
    (), None, ((31, "world", "other"),), ((31, "digest", "nocolon"),), ((31, "digest", "a:"),),
    ((31, "ip", "300.1.1.1"),), ((31, "ip", "1.2.3.4/33"),), ((31, "nosuch", "x"),), ((0, "world", "anyone"),),
)  # fmt: skip
PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1", "/a/x/2", "/c", "/a/x/1/deep", "/e", "/e/below")
WRONG_PATHS = (
    "a", "/a/", "/a//b", "/a/./b", "/a/../b", "//a", "/a/\0", "/\1", "/\x7f", "/\u00a0", "/\ue000", "/\ufff1",
    "/…", "/.", "/..", "/a/.", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/nowhere/x", "/a/..x", "/a/x..",
)  # fmt: skip
DATA: tuple[bytes | None, ...] = (b"", None, b"one", b"\0\xff" * 5, b"x" * 1000)
FLAGS = (0, 0, 0, 0, 1, 1, 2, 3)
ODD_FLAGS = (4, 5, 6, 7, -1, 99)


@dataclass(frozen=True)
class Step:
    """A request of client number `client`; `name` describes it in a difference."""

    client: int
    name: str
    op_code: int
    body: bytes
    xid: int | None = None


def random_requests(seed: int, length: int, clients: int = 2) -> list[Step]:
    """Mostly valid requests, with various invalid ones between them."""
    rng = random.Random(seed)
    return [Step(rng.randrange(clients), *_request(rng)) for _ in range(length)]


def play(connect: str, steps: list[Step], clients: int = 2) -> list[str]:
    """The result of each step, and at the end the tree after the first client's session is closed."""
    connections = [WireClient(connect) for _ in range(clients)]
    names = {connection.connected.session_id: f"session {index}" for index, connection in enumerate(connections)}
    reported = []
    for number, step in enumerate(steps):
        connection = connections[step.client]
        try:
            response = _respond(step.op_code, connection.call(step.op_code, step.body, xid=step.xid), names)
        except EOFError:
            response = "the connection is closed"
            connection.close()
            session = connection.connected
            connections[step.client] = WireClient(connect, session_id=session.session_id, password=session.password)
        reported.append(f"{number} client {step.client} {step.name}: {response}")
        for index, connection in enumerate(connections):
            reported += [f"{number} client {index} receives {event}" for event in connection.take_events()]
    for index, connection in enumerate(connections):
        reply = connection.call(wire.CLOSE)
        reported.append(f"client {index} closes: {reply}")
        for other_index, other in enumerate(connections[index + 1 :], index + 1):
            reported += sorted(f"client {other_index} receives {event}" for event in other.take_events())
        connection.close()
    reported += _everything(connect)
    return reported


def _everything(connect: str) -> list[str]:
    """The whole tree as far as a client without permissions can read it."""
    client = WireClient(connect)
    reported = []
    paths = ["/"]
    while paths:
        path = paths.pop()
        reported.append(f"{path}: {_respond(wire.EXISTS, client.call(wire.EXISTS, wire.read(path)), {})}")
        reply = client.call(wire.GET_CHILDREN, wire.read(path))
        if reply.error == 0:
            paths += [f"{path.rstrip('/')}/{name}" for name in sorted(_strings(reply.body, 0)[0])]
    client.call(wire.CLOSE)
    client.close()
    return reported


def _request(rng: random.Random) -> tuple[str, int, bytes] | tuple[str, int, bytes, int]:
    kinds: list[tuple[int, Callable[[random.Random], tuple[str, int, bytes] | tuple[str, int, bytes, int]]]] = [
        (30, _create), (12, _delete), (14, _set_data), (5, _set_acl), (14, _multi),
        (24, _read), (3, _multi_read), (3, _get_acl), (2, _sync), (3, _ephemerals), (2, _count),
        (4, _set_watches), (3, _add_watch), (5, _remove_watches), (1, _auth), (1, _who), (1, _reconfig), (2, _broken),
    ]  # fmt: skip
    (chosen,) = rng.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])
    return chosen(rng)


def _path(rng: random.Random) -> str:
    return rng.choice(WRONG_PATHS) if rng.random() < 0.08 else rng.choice(PATHS)


def _version(rng: random.Random) -> int:
    return rng.choice((-1, -1, -1, -1, 0, 0, 1, 2, -2))


def _create(rng: random.Random, *, is_plain: bool = False) -> tuple[str, int, bytes]:
    op_code = rng.choice((wire.CREATE, wire.CREATE, wire.CREATE2, wire.CREATE2, wire.CREATE_CONTAINER))
    flags = 4 if op_code == wire.CREATE_CONTAINER else rng.choice(FLAGS)
    if rng.random() < 0.05 and not is_plain:
        flags = rng.choice(ODD_FLAGS)
    path, data, acl = _path(rng), rng.choice(DATA), rng.choice(ACLS) if rng.random() < 0.4 else wire.OPEN_ACL
    if acl is None and is_plain:
        acl = ()
    if path == "/e" and op_code != wire.CREATE_CONTAINER:
        flags |= 1
    if flags in {2, 3} and rng.random() < 0.5:
        path += rng.choice(("-", "/", "/n-"))
    return f"create({op_code}) {path!r} {acl} flags={flags}", op_code, wire.create(path, data, acl, flags)


def _plain_create(rng: random.Random) -> tuple[str, int, bytes]:
    """Without errors that make a multi unreadable."""
    return _create(rng, is_plain=True)


def _delete(rng: random.Random) -> tuple[str, int, bytes]:
    path, version = _path(rng), _version(rng)
    return f"delete {path!r} {version}", wire.DELETE, wire.delete(path, version)


def _set_data(rng: random.Random) -> tuple[str, int, bytes]:
    path, data, version = _path(rng), rng.choice(DATA), _version(rng)
    return f"setData {path!r} {version}", wire.SET_DATA, wire.set_data(path, data, version)


def _set_acl(rng: random.Random) -> tuple[str, int, bytes]:
    path, acl, version = _path(rng), rng.choice(ACLS), _version(rng)
    return f"setACL {path!r} {acl} {version}", wire.SET_ACL, wire.set_acl(path, acl, version)


def _check(rng: random.Random) -> tuple[str, int, bytes]:
    path, version = _path(rng), _version(rng)
    return f"check {path!r} {version}", wire.CHECK, wire.check(path, version)


def _multi(rng: random.Random) -> tuple[str, int, bytes]:
    parts = [
        rng.choice((_plain_create, _plain_create, _delete, _set_data, _check))(rng) for _ in range(rng.randrange(5))
    ]
    return "multi " + "; ".join(part[0] for part in parts), wire.MULTI, wire.multi(part[1:] for part in parts)


def _multi_read(rng: random.Random) -> tuple[str, int, bytes]:
    parts = [(rng.choice((wire.GET_DATA, wire.GET_CHILDREN)), rng.choice(PATHS)) for _ in range(rng.randrange(4))]
    return f"multiRead {parts}", wire.MULTI_READ, wire.multi((op_code, wire.read(path)) for op_code, path in parts)


def _read(rng: random.Random) -> tuple[str, int, bytes]:
    op_code = rng.choice((wire.EXISTS, wire.GET_DATA, wire.GET_CHILDREN, wire.GET_CHILDREN2))
    path, watch = _path(rng), rng.random() < 0.5
    return f"read({op_code}) {path!r} watch={watch}", op_code, wire.read(path, watch=watch)


def _get_acl(rng: random.Random) -> tuple[str, int, bytes]:
    path = _path(rng)
    return f"getACL {path!r}", wire.GET_ACL, wire.string(path)


def _sync(rng: random.Random) -> tuple[str, int, bytes]:
    path = rng.choice(PATHS)
    return f"sync {path}", wire.SYNC, wire.string(path)


def _ephemerals(rng: random.Random) -> tuple[str, int, bytes]:
    prefix = rng.choice(("/", "", None, "/e", "/a/x"))
    return f"getEphemerals {prefix!r}", wire.GET_EPHEMERALS, wire.string(prefix)


def _count(rng: random.Random) -> tuple[str, int, bytes]:
    path = rng.choice(("/", *PATHS))
    return f"getAllChildrenNumber {path}", wire.GET_ALL_CHILDREN_NUMBER, wire.string(path)


def _set_watches(rng: random.Random) -> tuple[str, int, bytes, int]:
    zxid = rng.randrange(60)
    lists = [rng.sample(PATHS, rng.randrange(3)) for _ in range(3)]
    body = struct.pack(">q", zxid) + b"".join(map(wire.strings, lists))
    if rng.random() < 0.5:
        return f"setWatches {zxid} {lists}", wire.SET_WATCHES, body, -8
    more = [rng.sample(PATHS, rng.randrange(2)) for _ in range(2)]
    body += b"".join(map(wire.strings, more))
    return f"setWatches2 {zxid} {lists} {more}", wire.SET_WATCHES2, body, -8


def _add_watch(rng: random.Random) -> tuple[str, int, bytes]:
    path, mode = rng.choice(PATHS), rng.randrange(2)
    return f"addWatch {path} {mode}", wire.ADD_WATCH, wire.string(path) + struct.pack(">i", mode)


def _remove_watches(rng: random.Random) -> tuple[str, int, bytes]:
    path, kind = rng.choice(PATHS), rng.randrange(1, 4)
    return f"removeWatches {path} {kind}", wire.REMOVE_WATCHES, wire.string(path) + struct.pack(">i", kind)


def _auth(rng: random.Random) -> tuple[str, int, bytes, int]:
    scheme, credentials = rng.choice((("digest", b"ann:secret"), ("digest", b"bob:x"), ("ip", b"")))
    return f"auth {scheme}", wire.AUTH, struct.pack(">i", 0) + wire.string(scheme) + wire.buffer(credentials), -4


def _who(_: random.Random) -> tuple[str, int, bytes]:
    return "whoAmI", wire.WHO_AM_I, b""


def _reconfig(_: random.Random) -> tuple[str, int, bytes]:
    body = wire.string("server.2=x") + wire.string(None) + wire.string(None) + struct.pack(">q", -1)
    return "reconfig", wire.RECONFIG, body


def _broken(rng: random.Random) -> tuple[str, int, bytes]:
    """A read whose body is truncated.  (Truncated writes have no comparable results in Apache ZooKeeper.)"""
    name, op_code, body = _read(rng)
    return f"broken {name}", op_code, body[: rng.randrange(4)]


def _respond(op_code: int, reply: Reply, names: dict[int, str]) -> object:
    return reply.zxid, reply.error, _body(op_code, reply.body, 0, names)[0] if reply.error == 0 else reply.body


def _body(op_code: int, body: bytes, position: int, names: dict[int, str]) -> tuple[object, int]:
    match op_code:
        case wire.CREATE | wire.SYNC:
            return _string(body, position)
        case wire.CREATE2 | wire.CREATE_CONTAINER:
            path, position = _string(body, position)
            if position == len(body):
                return path, position
            stat, position = _stat(body, position, names)
            return (path, stat), position
        case wire.EXISTS | wire.SET_DATA | wire.SET_ACL:
            return _stat(body, position, names)
        case wire.GET_DATA:
            data, position = _buffer(body, position)
            stat, position = _stat(body, position, names)
            return (data, stat), position
        case wire.GET_CHILDREN | wire.GET_EPHEMERALS:
            children, position = _strings(body, position)
            return sorted(children), position
        case wire.GET_CHILDREN2:
            children, position = _strings(body, position)
            stat, position = _stat(body, position, names)
            return (sorted(children), stat), position
        case wire.WHO_AM_I:
            return sorted(_identities(body)), len(body)
        case wire.GET_ACL:
            end = len(body) - 68
            return (body[position:end], _stat(body, end, names)[0]), len(body)
        case wire.MULTI | wire.MULTI_READ:
            return _results(body, names), len(body)
        case _:
            return body[position:], len(body)


def _identities(body: bytes) -> list[tuple[str | None, str | None]]:
    (count,) = struct.unpack_from(">i", body)
    position = 4
    identities = []
    for _ in range(count):
        scheme, position = _string(body, position)
        name, position = _string(body, position)
        identities.append((scheme, name))
    return identities


def _results(body: bytes, names: dict[int, str]) -> list[object]:
    results: list[object] = []
    position = 0
    while True:
        op_code, is_done, error = struct.unpack_from(">i?i", body, position)
        position += 9
        if is_done:
            return [*results, (op_code, error, len(body) - position)]
        if op_code == -1:
            results.append((error, struct.unpack_from(">i", body, position)[0]))
            position += 4
        elif op_code in {wire.DELETE, wire.CHECK}:
            results.append((op_code, error))
        else:
            value, position = _body(op_code, body, position, names)
            results.append((op_code, error, value))


def _stat(body: bytes, position: int, names: dict[int, str]) -> tuple[object, int]:
    czxid, mzxid, ctime, mtime, *rest = struct.unpack_from(">qqqqiiiqiiq", body, position)
    version, cversion, aversion, owner, length, children, pzxid = rest
    clock = "never changed" if ctime == mtime else "changed"
    stat = (czxid, mzxid, pzxid, clock if version == 0 else "", version, cversion, aversion, length, children)
    return (*stat, names.get(owner, owner)), position + 68


def _string(body: bytes, position: int) -> tuple[str | None, int]:
    data, position = _buffer(body, position)
    return None if data is None else data.decode(), position


def _strings(body: bytes, position: int) -> tuple[list[str], int]:
    (count,) = struct.unpack_from(">i", body, position)
    position += 4
    texts = []
    for _ in range(count):
        text, position = _string(body, position)
        texts.append(str(text))
    return texts, position


def _buffer(body: bytes, position: int) -> tuple[bytes | None, int]:
    (length,) = struct.unpack_from(">i", body, position)
    position += 4
    return (None, position) if length < 0 else (body[position : position + length], position + length)
