"""Refuses a JAAS file for SASL to ZooKeeper, which kctl does not support (docs/decisions/zookeeper-authentication.md).

Apache Kafka's scripts pass Java's options in KAFKA_OPTS.  A broker that ignored the file would connect without an
identity, where its operator expects one.

Kafka: JaasUtils.isZkSaslEnabled (2.8).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from kctl.errors import ConfigError
from kctl.input_files import read_regular

_VARIABLE = "KAFKA_OPTS"
_FILE = "java.security.auth.login.config"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def refuse_client_section(environment: Mapping[str, str]) -> None:
    """Raises ConfigError if KAFKA_OPTS names a JAAS file with a section for ZooKeeper, or one that cannot be read.

    `-Dzookeeper.sasl.client=false` in KAFKA_OPTS switches SASL to ZooKeeper off, as for Apache Kafka.
    """
    options = _system_properties(environment.get(_VARIABLE, ""))
    path = options.get(_FILE, "")
    if not path or options.get("zookeeper.sasl.client", "true").lower() == "false":
        return
    section = options.get("zookeeper.sasl.clientconfig", "Client")
    try:
        text = read_regular(path).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(
            _FILE, path, f"cannot be read ({error.strerror}); correct or remove it in {_VARIABLE}"
        ) from None
    if re.search(rf"(?:^|[\s;}}]){re.escape(section)}\s*\{{", _COMMENT.sub(" ", text)):
        raise ConfigError(
            _FILE,
            path,
            f"its section {section} is for SASL to ZooKeeper, which kctl does not support; use a certificate "
            "(zookeeper.ssl.client.enable=true and zookeeper.ssl.keystore.location), or connect without an identity "
            f"by -Dzookeeper.sasl.client=false in {_VARIABLE}",
        )


def _system_properties(options: str) -> dict[str, str]:
    """The options -DNAME=VALUE.  Raises ConfigError if the text is malformed."""
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise ConfigError(_VARIABLE, "[hidden]", f"cannot be read: {error}") from None
    pairs = (word.removeprefix("-D").partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in pairs}
