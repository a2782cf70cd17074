"""One module per API, named as in Kafka: its request, its response and their nested structs.

Module docstrings list what each version changed.  Version ranges, nullability and defaults are on the fields
(kctl.protocol.message).  These fields mean the same in all messages and are not documented again:

    error_code          number of kctl.errors.ErrorCode; 0 for success
    error_message       detail for a person; null if there is none
    throttle_time_ms    how long the broker does not read from the connection because of a quota; 0 for no throttling.
                        Newer clients also stop sending for that time (KIP-219)
    timeout_ms          how long the broker waits for the operation to complete; the operation continues after that
    validate_only       check the request and respond, but change nothing
    broker_epoch        czxid of the broker's registration; -1 if unknown.  A request
                        with the epoch of an earlier registration fails with STALE_BROKER_EPOCH (KIP-380)
    controller_epoch    number of the controller's election; lower ones fail with STALE_CONTROLLER_EPOCH
    leader_epoch        number of the partition leader's election; -1 if unknown
    current_leader_epoch    leader epoch from the sender's metadata; -1 skips the check.  A lower one than the
                        leader's fails with FENCED_LEADER_EPOCH, a higher one with UNKNOWN_LEADER_EPOCH (KIP-320)
    topic_id            id of the topic (KIP-516); all zero if there is none
    group_instance_id   identity of a static member, kept over restarts (KIP-345); null for dynamic members
    authorized_operations   bit 1 << n is set if the caller may do operation n (numbers as in ACLs);
                        -2147483648 if the request did not include it (KIP-430)

Numbers in ACL requests:

    resource_type       0 unknown, 1 any, 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user
    pattern_type        0 unknown, 1 any, 2 match, 3 literal, 4 prefixed (KIP-290)
    operation           0 unknown, 1 any, 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe,
                        9 cluster action, 10 describe configs, 11 alter configs, 12 idempotent write, 13 create tokens,
                        14 describe tokens
    permission_type     0 unknown, 1 any, 2 deny, 3 allow

Numbers in configuration requests:

    resource_type       2 topic, 4 broker, 8 broker logger
"""
