"""setWatches as the client encodes it, against the decoder of the embedded server."""

from __future__ import annotations

from kctl.zookeeper.embedded.messages import requests
from kctl.zookeeper.embedded.messages.codes import Reader
from kctl.zookeeper.set_watches import SET_WATCHES_BYTES_MAX, SetWatches, Watch, batches


def test_server_decodes_paths_by_kind_in_order_and_once() -> None:
    watches = [
        Watch(Watch.CHILD, "/brokers/ids"),
        Watch(Watch.DATA, "/controller"),
        Watch(Watch.DATA, "/brokers/topics/größe"),
        Watch(Watch.DATA, "/controller"),
        Watch(Watch.EXIST, "/admin/preferred_replica_election"),
    ]
    body = SetWatches(7, watches).serialize()
    assert requests.decode(SetWatches.type, Reader(body)) == requests.SetWatches(
        relative_zxid=7,
        data=["/brokers/topics/größe", "/controller"],
        exist=["/admin/preferred_replica_election"],
        children=["/brokers/ids"],
        persistent=[],
        recursive=[],
    )


def test_many_watches_are_divided_into_requests_of_bounded_size() -> None:
    watches = [Watch(Watch.DATA, f"/brokers/topics/{'t' * 200}/partitions/{number}/state") for number in range(5_000)]
    parts = batches(watches)
    assert [watch for part in parts for watch in part] == watches
    assert len(parts) > 1
    assert all(len(SetWatches(0, part).serialize()) <= SET_WATCHES_BYTES_MAX + 20 for part in parts)


def test_no_watches_need_no_request() -> None:
    assert batches([]) == []


def test_a_watch_that_is_set_again_before_it_fires_is_kept_once() -> None:
    """kazoo's set of the watches of a path grew with each creation of another topic."""
    kept = {Watch(kind, "/brokers/topics/a") for kind in (Watch.DATA, Watch.EXIST, Watch.DATA)}
    assert len(kept) == 1
    assert Watch(Watch.CHILD, "/brokers/topics/a") not in kept
    assert Watch(Watch.DATA, "/brokers/topics/b") not in kept
