"""The broker.

Reading order: broker (composition root, start and stop in plain sight); network (sockets and frames); requests
(dispatch, purgatories, time); handlers (one file per API); replication (partitions of this broker); controller; groups.
"""
