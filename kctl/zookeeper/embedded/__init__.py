"""A ZooKeeper server with one node: the client protocol of ZooKeeper 3.8, durable, for development and small clusters.

Reading order: codes (numbers and errors), jute (the encoding), requests and responses, acl and node_paths (rules), tree
(znodes), watches, sessions, keeper (the state machine of all of these), store (SQLite), server (batches, commits and
responses), connection (frames on a socket), four_letter_words.  Everything before the store is pure.
"""
