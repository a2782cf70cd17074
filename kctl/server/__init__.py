"""The broker.

Reading order: broker (composition, start and stop); network (sockets and frames); requests (dispatch, purgatories,
time); handlers (one file per API); replication (partitions of this broker); controller; groups; transactions.
"""
