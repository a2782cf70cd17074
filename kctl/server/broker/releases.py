"""The APIs and versions that this broker serves, and that brokers of releases of Apache Kafka advertise.

The table was read from the ApiVersions responses of Apache brokers of 0.11.0.3, 1.1.1, 2.0.1, 2.4.1, 2.8.2, 3.9.1 (on
ZooKeeper) and 4.3.1 (KRaft); tests/golden/protocol/api_versions.txt has their bytes.  Of 4.3 the two APIs of client
telemetry are those of a broker with a receiver of metrics.  Pure.
"""

from __future__ import annotations

from functools import cache

from kctl.config.subjects.versions import KAFKA_RELEASES
from kctl.errors import ErrorCode
from kctl.protocol.apis.api_versions import ApiVersion
from kctl.protocol.registry import Api

API_VERSIONS_KEY = 18
_VERSIONS = """\
0   Produce                       0-3   0-5   0-6   0-8   0-9   0-11  0-13
1   Fetch                         0-5   0-7   0-8   0-11  0-12  0-17  4-18
2   ListOffsets                   0-2   0-2   0-3   0-5   0-6   0-9   1-11
3   Metadata                      0-4   0-5   0-6   0-9   0-11  0-12  0-13
4   LeaderAndIsr                  0     0-1   0-1   0-4   0-5   0-7   -
5   StopReplica                   0     0     0     0-2   0-3   0-4   -
6   UpdateMetadata                0-3   0-4   0-4   0-6   0-7   0-8   -
7   ControlledShutdown            1     0-1   0-1   0-3   0-3   0-3   -
8   OffsetCommit                  0-3   0-3   0-4   0-8   0-8   0-9   2-10
9   OffsetFetch                   0-3   0-3   0-4   0-6   0-7   0-9   1-10
10  FindCoordinator               0-1   0-1   0-2   0-3   0-3   0-6   0-6
11  JoinGroup                     0-2   0-2   0-3   0-6   0-7   0-9   0-9
12  Heartbeat                     0-1   0-1   0-2   0-4   0-4   0-4   0-4
13  LeaveGroup                    0-1   0-1   0-2   0-4   0-4   0-5   0-5
14  SyncGroup                     0-1   0-1   0-2   0-4   0-5   0-5   0-5
15  DescribeGroups                0-1   0-1   0-2   0-5   0-5   0-5   0-6
16  ListGroups                    0-1   0-1   0-2   0-3   0-4   0-5   0-5
17  SaslHandshake                 0     0-1   0-1   0-1   0-1   0-1   0-1
18  ApiVersions                   0-1   0-1   0-2   0-3   0-3   0-4   0-4
19  CreateTopics                  0-2   0-2   0-3   0-5   0-7   0-7   2-7
20  DeleteTopics                  0-1   0-1   0-2   0-4   0-6   0-6   1-6
21  DeleteRecords                 0     0     0-1   0-1   0-2   0-2   0-2
22  InitProducerId                0     0     0-1   0-2   0-4   0-5   0-5
23  OffsetForLeaderEpoch          0     0     0-1   0-3   0-4   0-4   2-4
24  AddPartitionsToTxn            0     0     0-1   0-1   0-3   0-5   0-5
25  AddOffsetsToTxn               0     0     0-1   0-1   0-3   0-4   0-4
26  EndTxn                        0     0     0-1   0-1   0-3   0-4   0-5
27  WriteTxnMarkers               0     0     0     0     0-1   0-1   1-2
28  TxnOffsetCommit               0     0     0-1   0-2   0-3   0-4   0-5
29  DescribeAcls                  0     0     0-1   0-1   0-2   0-3   1-3
30  CreateAcls                    0     0     0-1   0-1   0-2   0-3   1-3
31  DeleteAcls                    0     0     0-1   0-1   0-2   0-3   1-3
32  DescribeConfigs               0     0-1   0-2   0-2   0-4   0-4   1-4
33  AlterConfigs                  0     0     0-1   0-1   0-2   0-2   0-2
34  AlterReplicaLogDirs           -     0     0-1   0-1   0-2   0-2   1-2
35  DescribeLogDirs               -     0     0-1   0-1   0-2   0-4   1-5
36  SaslAuthenticate              -     0     0     0-1   0-2   0-2   0-2
37  CreatePartitions              -     0     0-1   0-1   0-3   0-3   0-3
38  CreateDelegationToken         -     0     0-1   0-2   0-2   0-3   1-3
39  RenewDelegationToken          -     0     0-1   0-1   0-2   0-2   1-2
40  ExpireDelegationToken         -     0     0-1   0-1   0-2   0-2   1-2
41  DescribeDelegationToken       -     0     0-1   0-1   0-2   0-3   1-3
42  DeleteGroups                  -     0     0-1   0-2   0-2   0-2   0-2
43  ElectLeaders                  -     -     -     0-2   0-2   0-2   0-2
44  IncrementalAlterConfigs       -     -     -     0-1   0-1   0-1   0-1
45  AlterPartitionReassignments   -     -     -     0     0     0     0-1
46  ListPartitionReassignments    -     -     -     0     0     0     0
47  OffsetDelete                  -     -     -     0     0     0     0
48  DescribeClientQuotas          -     -     -     -     0-1   0-1   0-1
49  AlterClientQuotas             -     -     -     -     0-1   0-1   0-1
50  DescribeUserScramCredentials  -     -     -     -     0     0     0
51  AlterUserScramCredentials     -     -     -     -     0     0     0
55  DescribeQuorum                -     -     -     -     -     -     0-2
56  AlterPartition                -     -     -     -     0     0-3   -
57  UpdateFeatures                -     -     -     -     0     0-1   0-2
58  Envelope                      -     -     -     -     -     0     -
60  DescribeCluster               -     -     -     -     0     0-1   0-2
61  DescribeProducers             -     -     -     -     0     0     0
64  UnregisterBroker              -     -     -     -     -     -     0
65  DescribeTransactions          -     -     -     -     -     0     0
66  ListTransactions              -     -     -     -     -     0-1   0-2
67  AllocateProducerIds           -     -     -     -     -     0     -
68  ConsumerGroupHeartbeat        -     -     -     -     -     0     0-1
69  ConsumerGroupDescribe         -     -     -     -     -     0     0-1
71  GetTelemetrySubscriptions     -     -     -     -     -     -     0
72  PushTelemetry                 -     -     -     -     -     -     0
74  ListConfigResources           -     -     -     -     -     -     0-1
75  DescribeTopicPartitions       -     -     -     -     -     -     0
76  ShareGroupHeartbeat           -     -     -     -     -     -     1
77  ShareGroupDescribe            -     -     -     -     -     -     1
78  ShareFetch                    -     -     -     -     -     -     1-2
79  ShareAcknowledge              -     -     -     -     -     -     1-2
80  AddRaftVoter                  -     -     -     -     -     -     0-1
81  RemoveRaftVoter               -     -     -     -     -     -     0
83  InitializeShareGroupState     -     -     -     -     -     -     0
84  ReadShareGroupState           -     -     -     -     -     -     0
85  WriteShareGroupState          -     -     -     -     -     -     0-1
86  DeleteShareGroupState         -     -     -     -     -     -     0
87  ReadShareGroupStateSummary    -     -     -     -     -     -     0-1
88  StreamsGroupHeartbeat         -     -     -     -     -     -     0
89  StreamsGroupDescribe          -     -     -     -     -     -     0
90  DescribeShareGroupOffsets     -     -     -     -     -     -     0-1
91  AlterShareGroupOffsets        -     -     -     -     -     -     0
92  DeleteShareGroupOffsets       -     -     -     -     -     -     0
"""
"""A row per API: its key, its name, and its versions in each of KAFKA_RELEASES; `-` if the release does not have it."""


@cache
def api_names() -> dict[int, str]:
    """Return the names of the APIs in the table, in Kafka's spelling, by key."""
    return {int(key): name for key, name, *_ in map(str.split, _VERSIONS.splitlines())}


@cache
def versions_of_release(release: str) -> dict[int, range]:
    """Return the versions of each API that a release, one of KAFKA_RELEASES, advertises, by key."""
    column = 2 + KAFKA_RELEASES.index(release)
    return {
        int(cells[0]): _parse_range(cells[column])
        for cells in map(str.split, _VERSIONS.splitlines())
        if cells[column] != "-"
    }


def _parse_range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


VERSIONS_OF_NEWER_GROUPS = {
    "consumer_group_heartbeat": range(2),
    "consumer_group_describe": range(2),
    "share_group_heartbeat": range(1, 2),
    "share_group_describe": range(1, 2),
    "share_fetch": range(1, 3),
    "share_acknowledge": range(1, 3),
    "initialize_share_group_state": range(1),
    "read_share_group_state": range(1),
    "write_share_group_state": range(2),
    "delete_share_group_state": range(1),
    "read_share_group_state_summary": range(2),
    "describe_share_group_offsets": range(2),
    "alter_share_group_offsets": range(1),
    "delete_share_group_offsets": range(1),
    "streams_group_heartbeat": range(1),
    "streams_group_describe": range(1),
}
"""The APIs of groups of newer protocols (KIP-848, KIP-932, KIP-1071), which are served if the protocol is enabled."""
VERSIONS_WITHOUT_TOPIC_IDS = {
    "metadata": range(12),
    "fetch": range(13),
    "produce": range(13),
    "offset_commit": range(10),
    "offset_fetch": range(10),
}
"""The versions that are served of APIs whose newest have topic ids (KIP-516), if topics have none."""


BETWEEN_BROKERS = frozenset(
    {"leader_and_isr", "stop_replica", "update_metadata", "controlled_shutdown", "alter_partition", "write_txn_markers"}
)
"""APIs that brokers of a cluster use among each other: they are served whatever is advertised."""
REPLACED_ERRORS: dict[str, dict[int, int]] = {
    release: {
        ErrorCode.INVALID_RECORD: ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: ErrorCode.UNKNOWN_SERVER_ERROR,
    }
    for release in ("0.11", "1.1", "2.0")
}
"""Error codes of Produce that releases do not have, and what they respond instead.

As seen from brokers of 0.11.0.3, 1.1.1 and 2.0.1: INVALID_RECORD is new in 2.4 (KIP-467), UNSUPPORTED_COMPRESSION_TYPE
in 2.1 (KIP-110).
"""
_RELEASES_WITHOUT_RANGE = frozenset({"0.11", "1.1", "2.0"})
"""They respond to a version of ApiVersions that they do not serve with no ranges; 2.4 names that of ApiVersions."""


class ServedVersions:
    """The versions of each API that a broker serves and advertises."""

    def __init__(self, *, has_topic_ids: bool, release: str | None = None) -> None:
        """`has_topic_ids`: whether topics have ids, as from inter.broker.protocol.version 2.8 on.

        With `release`, one of KAFKA_RELEASES, what that release advertises, as far as it is served.
        """
        self._has_topic_ids = has_topic_ids
        self._release = None if release is None else versions_of_release(release)

    def of(self, api: Api) -> range:
        """Return the versions of an API that are served; empty if there are none."""
        served = VERSIONS_OF_NEWER_GROUPS.get(api.name, api.served)
        if not self._has_topic_ids and api.name in VERSIONS_WITHOUT_TOPIC_IDS:
            served = _intersect(served, VERSIONS_WITHOUT_TOPIC_IDS[api.name])
        return served if api.name in BETWEEN_BROKERS else self._of_release(api, served)

    def advertised(self, api: Api) -> range:
        """Return the versions that ApiVersions names; empty if it does not name the API."""
        return self._of_release(api, self.of(api))

    def _of_release(self, api: Api, served: range) -> range:
        return served if self._release is None else _intersect(served, self._release.get(api.key, range(0)))


def ranges_for_unsupported(release: str | None, advertised: list[ApiVersion]) -> list[ApiVersion]:
    """Return what a response to a version of ApiVersions that is not served names.

    Without a release all ranges, so that the client need not ask again (KIP-511).
    """
    if release is None:
        return advertised
    if release in _RELEASES_WITHOUT_RANGE:
        return []
    return [api for api in advertised if api.api_key == API_VERSIONS_KEY]


def _intersect(served: range, limit: range) -> range:
    return range(max(served.start, limit.start), min(served.stop, limit.stop))
