"""Share groups (KIP-932): members that read the same partitions, record by record.

Reading order: group (the values of a group, each of which is a record), requests, assignor, heartbeat (from the checks
to the response); `records` writes and reads the values.  All of it is pure; `groups.step` calls it by
`groups.rules.share_group`, and `groups.runner` performs the actions.
"""
