"""The overrides of topics as ZooKeeper has them, each kept in memory until a watch reports a change.

ZooKeeper delivers the event of a watch before any response that shows a later state, and `kctl.zookeeper.session`
keeps this order.  After the response to one read, an entry whose watch has not fired therefore equals what a read of
its znode would have returned: it has every change that was complete when that read was sent.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.errors import NoNodeError
from kctl.limits import KEPT_TOPIC_CONFIG_BYTES_MAX, KEPT_TOPIC_CONFIGS_MAX
from kctl.server.large_znodes import decoded
from kctl.server.topic_writer import invalid_znode_as_api_error
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

_FOLDER = paths.topic_config("")


class WatchedConfigs:
    """Call `confirm` first, then `kept` for each topic, and `read` for those that are not."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._session_id = 0
        self._watched: dict[str, Mapping[str, str] | None] = {}
        """None for overrides that are not kept, because they are large or invalid."""
        self._reads: dict[str, object] = {}
        """A token for each topic whose watch is being set, until it fires."""

    def on_watch(self, event: WatchEvent) -> None:
        """Drops the overrides of a topic that were changed or deleted; other watches are ignored."""
        if event.path.startswith(_FOLDER):
            topic = event.path.removeprefix(_FOLDER)
            self._watched.pop(topic, None)
            self._reads.pop(topic, None)

    async def confirm(self) -> None:
        """Waits until changes that are complete have been dropped.  Raises ZooKeeperError."""
        await self._zookeeper.exists(paths.CONFIG)
        if self._session_id != self._zookeeper.session_id:  # The watches of an earlier session are lost.
            self._session_id = self._zookeeper.session_id
            self._watched.clear()
            self._reads.clear()

    def kept(self, topic: str) -> Mapping[str, str] | None:
        """The overrides that are in memory; None if they have to be read."""
        return self._watched.get(topic)

    async def read(self, topic: str) -> Mapping[str, str]:
        """Reads the overrides; none if the topic has no znode.

        Raises ZooKeeperError, and ApiError if the znode is invalid.
        """
        # A second watch on the same znode would be one object more in the client of ZooKeeper for each request.
        has_watch = topic in self._watched or topic in self._reads
        sets_watch = not has_watch and len(self._watched) + len(self._reads) < KEPT_TOPIC_CONFIGS_MAX
        token = object()
        if sets_watch:
            self._reads[topic] = token
        path = paths.topic_config(topic)
        is_kept = False
        try:
            data, _ = await self._zookeeper.get(path, watch=sets_watch)
            if self._reads.get(topic) is token:
                self._watched[topic] = None
                is_kept = len(data) <= KEPT_TOPIC_CONFIG_BYTES_MAX
        except NoNodeError:  # Without a watch.
            return {}
        finally:
            if self._reads.get(topic) is token:
                del self._reads[topic]
        with invalid_znode_as_api_error():
            overrides = await decoded(znodes.decode_config, path, data)  # Small ones without a pause.
        if is_kept:
            self._watched[topic] = overrides
        return overrides
