"""Authorized operations as bit masks in Metadata and DescribeCluster: bit n is AclOperation n.  KIP-430.

Without an authorizer, all operations of the resource type are allowed.
"""

from __future__ import annotations

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12

NOT_ASKED = -2_147_483_648

ALL_TOPIC_OPERATIONS = sum(
    1 << operation
    for operation in (_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
)
ALL_CLUSTER_OPERATIONS = sum(
    1 << operation
    for operation in (
        _CREATE,
        _ALTER,
        _DESCRIBE,
        _CLUSTER_ACTION,
        _DESCRIBE_CONFIGS,
        _ALTER_CONFIGS,
        _IDEMPOTENT_WRITE,
    )
)
