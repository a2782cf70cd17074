"""ZooKeeper, seen from a Kafka broker, and a small ZooKeeper of our own.

Read in this order: operations (what can be asked), paths and znodes (where Kafka keeps what, and how), session
(on kazoo_link, the one user of kazoo), embedded (a server of our own).
"""
