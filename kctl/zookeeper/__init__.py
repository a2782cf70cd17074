"""Kafka's use of ZooKeeper, and an embedded ZooKeeper server.

Reading order: operations (the requests), paths and znodes (where Kafka stores what, and in which format), session (over
kazoo_link, the only user of kazoo), embedded (the server).
"""
