"""SCRAM users in ZooKeeper, for clusters whose brokers do not run, or need the users to start.

Running brokers receive the same change notification as for changes by brokers.

Kafka: AdminZkClient.changeUserOrUserClientIdConfig (2.8).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence

from kctl.admin.outcome import Outcome
from kctl.admin.users import SALT_BYTES, DescribedUser, NewPassword
from kctl.errors import ApiError, BadVersionError, ErrorCode, NodeExistsError, NoNodeError
from kctl.security.scram_credentials import Mechanism, credential_of_password, credential_text, parse_credential
from kctl.security.scram_messages import ScramError
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper

_ATTEMPTS_MAX = 20


async def describe_users(zookeeper: ZooKeeper, names: Collection[str] = ()) -> list[DescribedUser]:
    """The users with SCRAM credentials, by name; without names all of them."""
    requested = sorted(names) or [paths.desanitize(each) for each in await _children(zookeeper)]
    described = []
    for user in requested:
        try:
            config, _ = await _read(zookeeper, user)
            iterations = {
                each: parse_credential(each, config[each.config_key]).iterations
                for each in Mechanism
                if each.config_key in config
            }
        except (ValueError, ScramError) as error:
            described.append(DescribedUser(Outcome(user, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))))
            continue
        if iterations:
            described.append(DescribedUser(Outcome(user), iterations))
        elif names:
            described.append(DescribedUser(_not_found(user)))
    return described


async def set_password(zookeeper: ZooKeeper, user: str, new: NewPassword) -> dict[Mechanism, Outcome]:
    """Creates or replaces the credentials of a user, all or none."""
    texts = {
        each.config_key: credential_text(
            credential_of_password(each, new.password, salt=secrets.token_bytes(SALT_BYTES), iterations=new.iterations)
        )
        for each in new.mechanisms
    }
    return dict.fromkeys(new.mechanisms, await _change(zookeeper, user, lambda config: {**config, **texts}))


async def delete_credentials(
    zookeeper: ZooKeeper, user: str, mechanisms: Sequence[Mechanism]
) -> dict[Mechanism, Outcome]:
    """Removes credentials of a user; RESOURCE_NOT_FOUND if one does not exist, and then none is removed."""
    keys = {each.config_key for each in mechanisms}

    def without(config: Mapping[str, str]) -> Mapping[str, str]:
        if not keys <= config.keys():
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND)
        return {name: value for name, value in config.items() if name not in keys}

    try:
        outcome = await _change(zookeeper, user, without)
    except ApiError:
        outcome = _not_found(user)
    return dict.fromkeys(mechanisms, outcome)


async def _change(zookeeper: ZooKeeper, user: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Outcome:
    entity = f"users/{paths.sanitize(user)}"
    path = paths.config_entity(entity)
    for _ in range(_ATTEMPTS_MAX):
        try:
            config, version = await _read(zookeeper, user)
        except ValueError as error:
            return Outcome(user, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        data = znodes.encode_config(change(config))
        try:
            if version is None:
                await zookeeper.create(path, data, make_parents=True)
            else:
                await zookeeper.set(path, data, version=version)
        except (NodeExistsError, BadVersionError, NoNodeError):
            continue  # Another writer changed the user in the meantime.
        await zookeeper.create(
            paths.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), sequence=True, make_parents=True
        )
        return Outcome(user)
    return Outcome(user, ErrorCode.UNKNOWN_SERVER_ERROR, "the user is being changed by others; try again")


async def _read(zookeeper: ZooKeeper, user: str) -> tuple[dict[str, str], int | None]:
    """The configuration of a user and the version of its znode; None if there is none.  Raises ValueError."""
    path = paths.config_entity(f"users/{paths.sanitize(user)}")
    try:
        data, stat = await zookeeper.get(path)
    except NoNodeError:
        return {}, None
    return znodes.decode_config(path, data), stat.version


async def _children(zookeeper: ZooKeeper) -> list[str]:
    try:
        elements = await zookeeper.children(paths.config_entity("users"))
    except NoNodeError:
        return []
    return [each for each in elements if each != paths.DEFAULT_ENTITY]


def _not_found(user: str) -> Outcome:
    return Outcome(user, ErrorCode.RESOURCE_NOT_FOUND, "the user has no such SCRAM credential")
