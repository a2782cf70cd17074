"""Checks whether a broker could start, without starting it: `kctl broker check`.

The checks are the start's own code where that changes nothing: properties, key stores, SASL mechanisms, the authorizer
and the security of connections.  Ports are bound and released at once.  Directories are only read.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.listeners import (
    control_plane_listener,
    inter_broker_listener,
    listener_endpoints,
    listener_properties,
    listener_property,
)
from kctl.errors import ConfigError, CorruptLog, KctlError, NoNodeError, shown_value
from kctl.model import Endpoint
from kctl.security.tls import store_problems
from kctl.server.loop.tasks import SystemClock, in_thread
from kctl.server.metrics.endpoint import bind_problem as metrics_bind_problem
from kctl.server.network.acceptor import bind_problem, bound_socket
from kctl.server.network.listen_settings import TLS_PROTOCOLS
from kctl.server.network.tls.listeners import ListenerCertificates
from kctl.server.peers.connections import PeerSecurity
from kctl.server.process.data_folder import DataFolder, DataFolderError
from kctl.server.process.host import FolderSessions
from kctl.server.process.starting import StartOptions
from kctl.server.requests.context import Peer
from kctl.server.security.authorization.loading import authorizer_of
from kctl.server.security.sasl.listeners import Channels
from kctl.server.security.sasl.mechanisms import Secrets
from kctl.server.security.sasl.scram_credentials import ScramCredentials
from kctl.server.security.tokens.token_cache import TokenCache
from kctl.storage.names import LOCK, META_PROPERTIES
from kctl.storage.state.checkpoints import MetaProperties, parse_meta_properties
from kctl.system import open_files
from kctl.system.user_files import read_regular
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.broker_znodes import decode_broker
from kctl.zookeeper.security import zookeeper_security
from kctl.zookeeper.session import ZooKeeperSession, split_connect_string

# Whether the ports of a broker can be bound: all are bound for an instant.


class PortProblem(NamedTuple):
    """An address that cannot be bound."""

    address: str
    message: str


def port_problems(config: BrokerConfig, *, with_listeners: bool = True) -> Iterator[PortProblem]:
    """Yield the ports of a broker that cannot be bound, also because two of them are the same."""
    endpoints = listener_endpoints(config) if with_listeners else ()
    addresses: list[tuple[str, int, Callable[[str, int, OSError], str]]]
    addresses = [(endpoint.host, endpoint.port, bind_problem) for endpoint in endpoints]
    if config.metrics_port >= 0:
        addresses.append((config.metrics_host, config.metrics_port, metrics_bind_problem))
    taken = []
    try:
        for host, port, problem in addresses:
            try:
                # All stay bound until the last one is.
                taken.append(bound_socket(host, port))
            except OSError as error:
                yield PortProblem(f"{host}:{port}", problem(host, port, error))
    finally:
        for sock in taken:
            sock.close()


DESCRIPTORS_MIN = 4_096
_DYNAMIC = "; if it is stored in ZooKeeper (kctl configs alter broker), the broker reads it there"
_TLS_OF_LISTENER = re.compile(r"listener\.name\.([^.]+)\.ssl\.")
_ADDRESS_PROPERTIES = frozenset({"listeners", "listener.security.protocol.map", "host.name", "port"})
_LISTENER_PROPERTIES = frozenset(
    {
        *_ADDRESS_PROPERTIES,
        "advertised.listeners",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "control.plane.listener.name",
    }
)


class Severity(Enum):
    """Whether the broker would start."""

    ERROR = "error"
    """The broker would not start."""
    WARNING = "warning"
    """The broker would start, but not as the property or the file specifies."""


class Finding(NamedTuple):
    """One problem; `subject` is a property, a path or an address."""

    severity: Severity
    subject: str
    message: str


async def findings(options: StartOptions, *, connects: bool) -> AsyncIterator[Finding]:
    """Yield all problems of a broker with these options.  `connects`: also connect to ZooKeeper.

    Changes nothing; ports and locks are taken for an instant.
    """
    examined = options.examine()
    for problem in examined.problems:
        value = "" if problem.value is None else f"'{shown_value(problem.value)}' "
        yield Finding(Severity.ERROR, problem.name, f"{value}{problem.reason}; {problem.remedy}")
    unusable = {problem.name for problem in examined.problems}
    for warning in examined.warnings:
        name, _, reason = warning.partition(": ")
        if name not in unusable:  # One of KRaft is an error, and not merely unknown and ignored.
            yield Finding(Severity.WARNING, name, reason)
    # ConfigView accepts only properties that can be parsed; the others have been reported.
    properties = {name: text for name, text in options.properties().items() if name not in unusable}
    view = ConfigView(properties)
    running = _running(options.folder)
    if running is not None:
        yield running
    if running is None:
        for address in port_problems(examined.config, with_listeners=unusable.isdisjoint(_ADDRESS_PROPERTIES)):
            yield _error(*address)
    if unusable.isdisjoint(_LISTENER_PROPERTIES):
        async for finding in _listeners(view):
            yield finding
    else:
        for finding in await in_thread(partial(_stores, view)):
            yield finding
    for finding in _authorizer(view):
        yield finding
    for finding in [*_data_folder(options.folder), *_log_directories(examined.config, is_running=running is not None)]:
        yield finding
    limit = open_files.raise_limit()
    if 0 <= limit < DESCRIPTORS_MIN:
        message = f"the limit of {limit} is too low for a broker with many segments and clients: raise it (ulimit -n)"
        yield Finding(Severity.WARNING, "open files", message)
    async for finding in _zookeeper(view, options.folder, connects=connects, is_running=running is not None):
        yield finding


def _error(subject: str, message: str) -> Finding:
    return Finding(Severity.ERROR, subject, message)


def _of(error: ConfigError) -> Finding:
    return _error(error.name, _reason(error))


def _reason(error: ConfigError) -> str:
    """Return the value, if there is one, and what is wrong with it."""
    return str(error).removeprefix(f"{error.name}=").removeprefix(": ")


def _running(folder: DataFolder) -> Finding | None:
    try:
        running = folder.running()
    except DataFolderError:
        return None  # `_data_folder` reports it.
    if running is None:
        return None
    message = f"the broker of this folder is running (process {running.pid}): its ports and locks were not checked"
    return Finding(Severity.WARNING, str(folder.path), message)


# Listeners: ports, certificates, SASL mechanisms, connections to other brokers.


async def _listeners(view: ConfigView) -> AsyncIterator[Finding]:
    endpoints = listener_endpoints(view.current)
    for endpoint in endpoints:
        if endpoint.security_protocol in TLS_PROTOCOLS:
            for finding in await _certificates(view, endpoint):
                yield finding
        if endpoint.security_protocol.startswith("SASL_"):
            async for finding in _mechanisms(view, endpoint):
                yield finding
    control_plane = control_plane_listener(view.current)
    own = inter_broker_listener(view.current)
    for listener in dict.fromkeys([own] if control_plane is None else [own, control_plane]):
        try:
            await PeerSecurity(view).load([listener])
        except ConfigError as error:
            yield _error(error.name, f"for connections to other brokers: {_reason(error)}")


async def _certificates(view: ConfigView, endpoint: Endpoint) -> list[Finding]:
    certificates = ListenerCertificates(view)
    try:
        await certificates.load([endpoint])
    except ConfigError as error:
        given = listener_properties(view.static, endpoint.listener)
        stores = [_of(problem) for problem in await in_thread(partial(store_problems, given))]
        if any(name.startswith("ssl.keystore.") for name in given):
            return list(dict.fromkeys([_of(error), *stores]))
        message = f"listener {endpoint.listener}: {error.reason}{_DYNAMIC}"
        return [Finding(Severity.WARNING, error.name, message), *stores]
    finally:
        await certificates.close()
    return []


def _stores(view: ConfigView) -> list[Finding]:
    """Return the problems of all key stores and trust stores, for listeners that cannot be told from the properties."""
    listeners = dict.fromkeys(["", *(found[1] for name in view.static if (found := _TLS_OF_LISTENER.match(name)))])
    problems = [
        problem for listener in listeners for problem in store_problems(listener_properties(view.static, listener))
    ]
    return list(dict.fromkeys(map(_of, problems)))


async def _mechanisms(view: ConfigView, endpoint: Endpoint) -> AsyncIterator[Finding]:
    """Yield each mechanism separately, because building a listener reports the first problem only."""
    name = f"listener.name.{endpoint.listener.lower()}.sasl.enabled.mechanisms"
    only = {"listeners": f"{endpoint.listener}://127.0.0.1:0"}
    try:
        mechanisms = listener_property(view.static, "sasl.enabled.mechanisms", listener=endpoint.listener)
    except ConfigError as error:
        yield _of(error)
        return
    assert isinstance(mechanisms, tuple)
    secrets = Secrets(ScramCredentials(), TokenCache(None))
    for mechanism in mechanisms or ("",):
        alone = ConfigView({**view.static, **only, name: mechanism})
        try:
            channels = Channels(alone, handle=_handle_nothing, clock=SystemClock(), secrets=secrets)
            await channels.check_key_files()
        except ConfigError as error:
            yield _of(error)


def _handle_nothing(_: memoryview, peer: Peer) -> NoReturn:
    raise AssertionError(f"no connection is accepted, {peer}")


def _authorizer(view: ConfigView) -> Iterator[Finding]:
    try:
        authorizer_of(view.current, view.static, SystemClock())
    except ConfigError as error:
        yield _of(error)


# Directories.


def _data_folder(folder: DataFolder) -> Iterator[Finding]:
    problem = _unwritable(folder.path)
    if problem is not None:
        yield _error(str(folder.path), f"the data folder {problem}; choose another with --data-dir")


def _log_directories(config: BrokerConfig, *, is_running: bool) -> Iterator[Finding]:
    found: dict[Path, MetaProperties] = {}
    seen: dict[Path, str] = {}
    for text in config.log_directories:
        path = Path(text).absolute()
        resolved = path.resolve()
        if resolved in seen:
            yield _error("log.dirs", f"{text} is the same directory as {seen[resolved]}; keep one of them")
            continue
        outer = next((seen[parent] for parent in resolved.parents if parent in seen), None)
        if outer is not None:
            yield _error("log.dirs", f"{text} is inside of {outer}, whose folders are those of partitions; move it")
        seen[resolved] = text
        problem = _unwritable(path)
        if problem is not None:
            yield _error(text, f"the log directory {problem}; correct its owner and permissions, or log.dirs")
            continue
        if not is_running and _is_locked(path / LOCK):
            yield _error(text, "another process is using this log directory; stop it, or correct log.dirs")
        try:
            found[path] = parse_meta_properties(read_regular(str(path / META_PROPERTIES)), str(path / META_PROPERTIES))
        except FileNotFoundError:
            continue
        except (OSError, CorruptLog) as error:
            yield _error(str(path / META_PROPERTIES), f"cannot be read: {error}; restore it, or remove it")
    yield from _identities(config, found)


def _identities(config: BrokerConfig, found: Mapping[Path, MetaProperties]) -> Iterator[Finding]:
    for name, values in (
        ("cluster.id", {meta.cluster_id for meta in found.values()}),
        ("broker.id", {meta.broker_id for meta in found.values()}),
    ):
        if len(values) > 1:
            shown = ", ".join(sorted(map(str, values)))
            message = f"the directories have data of different {name}: {shown}; list only those of one broker"
            yield _error("log.dirs", message)
    for path, meta in found.items():
        if meta.broker_id is not None and 0 <= config.broker_id != meta.broker_id:
            where = path / META_PROPERTIES
            message = f"{config.broker_id} differs from {meta.broker_id} in {where}; set broker.id={meta.broker_id}"
            yield _error("broker.id", f"{message}, or use the folder that belongs to broker {config.broker_id}")


def _unwritable(path: Path) -> str | None:
    """Return why this user cannot create or write the directory."""
    existing = next(candidate for candidate in (path, *path.parents) if os.path.lexists(candidate))
    where = "" if existing == path else f"cannot be created: {existing} "
    if not existing.is_dir():
        return f"{where}is not a directory"
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return f"{where}cannot be written by this user"
    return None


def _is_locked(path: Path) -> bool:
    """Take the locks of kctl's and Apache Kafka's brokers for an instant."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


# ZooKeeper.


async def _zookeeper(
    view: ConfigView, folder: DataFolder, *, connects: bool, is_running: bool
) -> AsyncIterator[Finding]:
    config = view.current
    try:
        security = zookeeper_security(view.static)
    except ConfigError as error:
        yield _of(error)
        return
    if not config.zookeeper_connect:
        return
    try:
        split_connect_string(config.zookeeper_connect)
    except ConfigError as error:
        yield _of(error)
        return
    if not connects:
        return
    session = ZooKeeperSession(config.zookeeper_connect, create_chroot=False, security=security)
    try:
        await session.start(config.zookeeper_connection_timeout)
    except KctlError as error:
        yield _error("zookeeper.connect", str(error))
        return
    try:
        registration = await _registration(session, config, folder, is_running=is_running)
        for finding in [*await _cluster_id(session, config), *registration]:
            yield finding
    except KctlError as error:
        yield _error("zookeeper.connect", str(error))
    finally:
        await session.close()


async def _cluster_id(session: ZooKeeperSession, config: BrokerConfig) -> Iterable[Finding]:
    try:
        data, _ = await session.get(paths.CLUSTER_ID)
    except NoNodeError:
        return []
    return _other_clusters(config, znodes.decode_cluster_id(paths.CLUSTER_ID, data))


def _other_clusters(config: BrokerConfig, cluster: str) -> Iterator[Finding]:
    for text in config.log_directories:
        path = Path(text).absolute() / META_PROPERTIES
        try:
            stored = parse_meta_properties(read_regular(str(path)), str(path)).cluster_id
        except (OSError, CorruptLog):
            continue  # Reported before.
        if stored not in {None, cluster}:
            message = f"{path} belongs to cluster {stored}, but zookeeper.connect leads to cluster {cluster}"
            yield _error("log.dirs", f"{message}; correct zookeeper.connect or log.dirs")


async def _registration(
    session: ZooKeeperSession, config: BrokerConfig, folder: DataFolder, *, is_running: bool
) -> Iterable[Finding]:
    """Find another registration: a start replaces that of an earlier process of this folder, and waits for the end of
    any other.
    """
    if config.broker_id < 0 or is_running:
        return []
    path = paths.broker(config.broker_id)
    try:
        data, stat = await session.get(path)
        other = decode_broker(path, data)
    except (NoNodeError, ValueError):
        return []
    owner = stat.ephemeral_owner
    if not owner or FolderSessions(folder, has_own_zookeeper=False).has_used(owner):
        return []
    where = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in other.endpoints)
    message = f"{config.broker_id} is registered by another broker at {where}: stop that broker, or choose another id"
    return [_error("broker.id", f"{message} (if it was killed, its registration ends with its ZooKeeper session)")]
