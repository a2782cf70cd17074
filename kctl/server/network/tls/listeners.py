"""The certificates of TLS listeners: loaded when a listener opens, and again when the configuration or a file changes.

A change that cannot be used is logged once, and the old certificates stay in use.  If dynamic properties cannot be used
at start, those of server.properties are; a listener without usable ones refuses all connections until it has some.
Connections that are open keep theirs.  Stores are read in a thread, because deriving a key from a password takes time
by design.

Kafka: SslFactory, DynamicBrokerConfig.DynamicListenerConfig (2.8).  Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.listeners import listener_properties
from kctl.errors import ConfigError, KctlError
from kctl.model import Endpoint
from kctl.security.principals import PrincipalRules
from kctl.security.tls import TlsSettings, server_context
from kctl.server.loop.tasks import in_thread, run_every
from kctl.server.requests.context import ANONYMOUS
from kctl.server.znodes.problem_log import ProblemLog

# Detects changes of files by their attributes.


FileStates: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Modification time (ns), size and inode of each file; None for one that cannot be accessed."""


def states_of(paths: Iterable[str]) -> FileStates:
    """Return the current states."""
    return tuple(_state(path) for path in paths)


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: the path contains NUL, for example.
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


log = logging.getLogger(__name__)

_FILES_CHECK_MS = 10_000


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The certificates of a listener that are in use."""

    settings: TlsSettings
    files: FileStates
    context: ssl.SSLContext
    rules: PrincipalRules


class ListenerCertificates:
    """Implements network.tls_handshakes.ListenerTls."""

    def __init__(self, configs: ConfigView) -> None:
        self._configs = configs
        self._endpoints: dict[str, Endpoint] = {}
        self._loaded: dict[str, _Loaded | None] = {}
        """By listener; None without usable certificates."""
        self._problems = ProblemLog(log, "cannot load certificates, the old ones stay in use listener=%s error=%s")
        self._reloading: asyncio.Task[None] | None = None
        self._is_stale = False
        self._checks: asyncio.Task[None] | None = None

    async def load(self, endpoints: Iterable[Endpoint]) -> None:
        """Load the certificates of these TLS listeners, and keep them up to date.  Raises ConfigError."""
        for endpoint in endpoints:
            self._loaded[endpoint.listener] = await self._first(endpoint)
            self._endpoints[endpoint.listener] = endpoint
        if self._loaded:
            self._follow()

    async def add(self, endpoint: Endpoint) -> None:
        """Load the certificates of a listener that is about to open.  Raises ConfigError."""
        self._loaded[endpoint.listener] = await self._load(endpoint, self._configs.properties)
        self._endpoints[endpoint.listener] = endpoint
        self._follow()

    def remove(self, listener: str) -> None:
        """Remove a listener; no effect without certificates for it."""
        self._endpoints.pop(listener, None)
        self._loaded.pop(listener, None)

    async def try_properties(self, endpoint: Endpoint, properties: Mapping[str, str]) -> None:
        """Raise ConfigError if a listener could not open with these properties."""
        await self._load(endpoint, properties)

    def context(self, listener: str) -> ssl.SSLContext:
        """Return the current context of a listener.  Raises KctlError if it has none."""
        return self._certificates(listener).context

    def principal(self, listener: str, certificate: bytes | None) -> str:
        """Return the principal of a client.

        Raises KctlError without a rule or a name, ValueError if that is malformed.
        """
        if certificate is None:
            return ANONYMOUS
        from kctl.security.principals import subject_name  # noqa: PLC0415 - only TLS needs `cryptography`

        name = self._certificates(listener).rules.user_name(subject_name(certificate))
        if not name:
            raise KctlError("the certificate's subject, or the name that ssl.principal.mapping.rules give it, is empty")
        return f"User:{name}"

    async def check(self, _: BrokerConfig, properties: Mapping[str, str]) -> None:
        """Raise ConfigError if a listener could not use the changes among these properties."""
        for endpoint in list(self._endpoints.values()):
            if _texts(endpoint, properties) != _texts(endpoint, self._configs.properties):
                await self._load(endpoint, properties)

    def check_files(self) -> None:
        """Reload listeners whose files have changed, and those without certificates."""
        if any(loaded is None or loaded.files != states_of(loaded.settings.files) for loaded in self._loaded.values()):
            self._reload()

    async def close(self) -> None:
        """End the checks."""
        for task in (self._checks, self._reloading):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _follow(self) -> None:
        if self._checks is None:
            self._configs.subscribe(self._config_changed)
            self._configs.add_check(self.check)
            self._checks = asyncio.create_task(run_every(_FILES_CHECK_MS, self.check_files), name="certificate-files")

    async def _first(self, endpoint: Endpoint) -> _Loaded | None:
        """Return the certificates at start.

        Raises ConfigError if they are unusable and no dynamic property is the cause.
        """
        listener = endpoint.listener
        try:
            return await self._load(endpoint, self._configs.properties)
        except ConfigError as error:
            if _texts(endpoint, self._configs.properties) == _texts(endpoint, self._configs.static):
                raise
            self._problems.report(listener, str(error))
        try:
            return await self._load(endpoint, self._configs.static)
        except ConfigError as error:
            log.error("refusing all connections, there are no certificates listener=%s error=%s", listener, error)
            return None

    async def _load(self, endpoint: Endpoint, properties: Mapping[str, str]) -> _Loaded:
        """Load the certificates of a listener, or raise ConfigError."""
        return await in_thread(partial(_load, _settings(endpoint, properties)))

    def _certificates(self, listener: str) -> _Loaded:
        loaded = self._loaded.get(listener)
        if loaded is None:
            raise KctlError("the listener has no usable certificate")
        return loaded

    def _config_changed(self) -> None:
        try:
            properties = self._configs.properties
            is_changed = any(
                loaded is None or loaded.settings != _settings(self._endpoints[name], properties)
                for name, loaded in self._loaded.items()
            )
        except ConfigError:
            is_changed = True  # Reloading logs the error.
        if is_changed:
            self._reload()

    def _reload(self) -> None:
        self._is_stale = True
        if self._reloading is None:
            self._reloading = asyncio.get_running_loop().create_task(self._reload_all(), name="certificates")

    async def _reload_all(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                for listener in list(self._loaded):
                    if listener in self._loaded:  # It may have been removed meanwhile.
                        await self._reload_one(listener, self._loaded[listener])
        finally:
            self._reloading = None

    async def _reload_one(self, listener: str, loaded: _Loaded | None) -> None:
        files: FileStates | None = None
        try:
            settings = _settings(self._endpoints[listener], self._configs.properties)
            files = states_of(settings.files)
            if loaded is None or settings != loaded.settings or files != loaded.files:
                replacement = await in_thread(partial(_load, settings))
                if listener in self._loaded:  # It may have been removed meanwhile.
                    self._loaded[listener] = replacement
                    log.info("loaded certificates listener=%s", listener)
            self._problems.report(listener)
        except ConfigError as error:
            self._problems.report(listener, str(error))
            if loaded is not None and files is not None and listener in self._loaded:
                # The same files are not loaded again.
                self._loaded[listener] = _Loaded(loaded.settings, files, loaded.context, loaded.rules)


def _texts(endpoint: Endpoint, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that determine the settings of a listener."""
    own = listener_properties(properties, endpoint.listener)
    if endpoint.security_protocol == "SASL_SSL":
        # KIP-684: with SASL, clients need a certificate only if the property is set for the listener itself.
        own["ssl.client.auth"] = properties.get(f"listener.name.{endpoint.listener.lower()}.ssl.client.auth", "none")
    return {name: text for name, text in own.items() if name.startswith("ssl.")}


def _settings(endpoint: Endpoint, properties: Mapping[str, str]) -> TlsSettings:
    """Return the TLS settings of a listener, or raise ConfigError."""
    return TlsSettings.of(_texts(endpoint, properties))


def _load(settings: TlsSettings) -> _Loaded:
    # The state is read first, so that the next check detects a change during the load.
    states = states_of(settings.files)
    return _Loaded(settings, states, server_context(settings), PrincipalRules(settings.principal_mapping_rules))
