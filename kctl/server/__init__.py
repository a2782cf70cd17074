"""The broker.

Reading order: parts and broker (composition, start and stop); network (sockets and frames); requests (times,
purgatories); handlers (one file per API); replication (partitions of this broker); cluster (the controller and what its
requests bring); coordination (groups and transactions).
"""
