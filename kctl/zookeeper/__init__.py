"""Kafka's use of ZooKeeper, and an embedded ZooKeeper server.

Reading order: operations (the requests), paths and znodes (where Kafka stores what, and in which format), session (over
kazoo_link and kazoo_requests, which import kazoo), embedded (the server).
"""
