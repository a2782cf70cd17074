"""Creates the authorizer that `authorizer.class.name` selects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import entry_points

from kctl.config.broker import BrokerConfig
from kctl.errors import ConfigError
from kctl.security.authorization import AccessPolicy, parse_super_users
from kctl.server.security.authorization.access import Authorizer
from kctl.server.security.authorization.zookeeper_acls import ZooKeeperAcls
from kctl.system.environment import Clock
from kctl.zookeeper.operations import ZooKeeper

ACL_AUTHORIZERS = frozenset({"kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"})
"""The class names of Kafka's authorizer in ZooKeeper mode, and its name before 2.4."""
PLUG_IN_GROUP = "kctl.authorizers"


def authorizer_of(
    config: BrokerConfig, properties: Mapping[str, str], clock: Clock
) -> Callable[[ZooKeeper], Authorizer] | None:
    """Return the configured authorizer, not started, when ZooKeeper is connected; None if there is none.

    Raises ConfigError; called before the broker opens connections, so that an invalid configuration stops it early.
    """
    name = config.authorizer_class_name.strip()
    if not name:
        return None
    if name in ACL_AUTHORIZERS:
        try:
            super_users = parse_super_users(config.super_users)
        except ValueError as error:
            raise ConfigError("super.users", config.super_users, str(error)) from error
        policy = AccessPolicy(super_users, allows_without_acl=config.allow_everyone_if_no_acl_found)
        return partial(ZooKeeperAcls, policy=policy, clock=clock)
    plug_in = _plug_in(name, properties)
    return lambda _: plug_in


def _plug_in(name: str, properties: Mapping[str, str]) -> Authorizer:
    found = entry_points(group=PLUG_IN_GROUP, name=name)
    if not found:
        known = sorted(entry_points(group=PLUG_IN_GROUP).names)
        installed = f"installed plug-ins: {', '.join(known)}" if known else "no plug-in is installed"
        raise ConfigError(
            "authorizer.class.name",
            name,
            f"expected {' or '.join(sorted(ACL_AUTHORIZERS))}, or the name of a plug-in in the entry point group "
            f"{PLUG_IN_GROUP} ({installed})",
        )
    try:
        factory = next(iter(found)).load()
        authorizer: Authorizer = factory(properties)
    except Exception as error:
        raise ConfigError("authorizer.class.name", name, f"the plug-in failed: {error}") from error
    return authorizer
