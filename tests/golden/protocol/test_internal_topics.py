"""Records of the internal topics, taken from the logs of a Kafka 2.7.1 broker used by console consumers."""

from __future__ import annotations

from kctl.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kctl.records.internal.topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_offsets_key,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)

OFFSET_KEY = bytes.fromhex(
    "00010016636f6e736f6c652d636f6e73756d65722d3635303730000f746573745f746f7069635f3036303300000000"
)
OFFSET_VALUE = bytes.fromhex("00030000000000000009ffffffff0000000001888260a41b")
GROUP_KEY = bytes.fromhex("00020016636f6e736f6c652d636f6e73756d65722d3535323331")
EMPTY_GROUP_VALUE = bytes.fromhex("00030008636f6e73756d657200000002ffffffff00000188812d292c00000000")
GROUP_VALUE = bytes.fromhex(
    "00030008636f6e73756d657200000001000572616e67650046636f6e73756d65722d636f6e736f6c652d636f6e73756d65722d35353233"
    "312d312d35666331393733372d653061382d343763352d393631372d35346239303361363135303200000184d800f79c00000001004663"
    "6f6e73756d65722d636f6e736f6c652d636f6e73756d65722d35353233312d312d35666331393733372d653061382d343763352d393631"
    "372d353462393033613631353032ffff0021636f6e73756d65722d636f6e736f6c652d636f6e73756d65722d35353233312d31000a2f31"
    "32372e302e302e31000493e0000027100000001700010000000100076d79546f706963ffffffff000000000000001b0001000000010007"
    "6d79546f7069630000000100000000ffffffff"
)
MEMBER_ID = "consumer-console-consumer-55231-1-5fc19737-e0a8-47c5-9617-54b903a61502"


def test_committed_offset() -> None:
    key = OffsetCommitKey(group="console-consumer-65070", topic="test_topic_0603", partition=0)
    value = OffsetCommitValue(offset=9, metadata="", commit_timestamp=1685814551579)
    assert decode_offsets_key(OFFSET_KEY) == key
    assert encode_offset_commit_key(key.group, key.topic, key.partition) == OFFSET_KEY
    assert decode_offset_commit_value(OFFSET_VALUE) == value
    assert encode_offset_commit_value(value) == OFFSET_VALUE


def test_empty_group_is_decoded_and_encoded() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol=None,
        leader=None,
        current_state_timestamp=1685794400556,
        members=[],
    )
    assert decode_offsets_key(GROUP_KEY) == GroupMetadataKey(group="console-consumer-55231")
    assert encode_group_metadata_key("console-consumer-55231") == GROUP_KEY
    assert decode_group_metadata_value(EMPTY_GROUP_VALUE) == value
    assert encode_group_metadata_value(value) == EMPTY_GROUP_VALUE


def test_group_with_a_member_whose_subscription_and_assignment_are_those_of_a_java_consumer() -> None:
    subscription = ConsumerProtocolSubscription(topics=["myTopic"])
    assignment = ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions(topic="myTopic", partitions=[0])])
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=MEMBER_ID,
        current_state_timestamp=1670071252892,
        members=[
            MemberMetadata(
                member_id=MEMBER_ID,
                client_id="consumer-console-consumer-55231-1",
                client_host="/127.0.0.1",
                rebalance_timeout=300_000,
                session_timeout=10_000,
                subscription=encode_subscription(subscription, 1),
                assignment=encode_assignment(assignment),
            )
        ],
    )
    assert decode_group_metadata_value(GROUP_VALUE) == value
    assert encode_group_metadata_value(value) == GROUP_VALUE
    assert decode_subscription(value.members[0].subscription) == subscription
    assert decode_assignment(value.members[0].assignment) == assignment
