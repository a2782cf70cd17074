"""Operations on paths that need several requests: create with parents, delete recursively.  Not atomic."""

from __future__ import annotations

from kctl.errors import NodeExistsError, NoNodeError, NotEmptyError
from kctl.zookeeper.operations import ZooKeeper
from kctl.zookeeper.paths import parent


async def make_path(zookeeper: ZooKeeper, path: str) -> None:
    """Create a znode and its parents, where they are missing."""
    try:
        await zookeeper.create(path)
    except NodeExistsError:
        return
    except NoNodeError:
        await make_path(zookeeper, parent(path))
        await make_path(zookeeper, path)


async def delete_tree(zookeeper: ZooKeeper, path: str) -> None:
    """Delete a znode and its descendants; a missing one is fine."""
    try:
        for child in await zookeeper.children(path):
            await delete_tree(zookeeper, f"{path.rstrip('/')}/{child}")
        await zookeeper.delete(path)
    except NoNodeError:
        return
    except NotEmptyError:  # Another client added a child meanwhile.
        await delete_tree(zookeeper, path)
