"""Groups of the consumer protocol (KIP-848): the broker assigns partitions, and members change one after the other.

Reading order: state (the values that are stored), group (a group is the last value of each of its records), then the
rules: assignors (who shall own what), reconciliation (how a member gets there), heartbeat (a request, from its checks
to its response), commits.  `records` writes and reads them; `topic_names` matches topics with expressions
of RE2.  All of it is pure; `groups.step` calls it, and `groups.runner` performs the actions.
"""
