"""A ZooKeeper server for one machine: the client protocol of ZooKeeper 3.8, one node, durable.

Read in this order: codes (numbers and errors), jute (the encoding), requests and responses (what travels), acl and
node_paths (rules), tree (znodes), watches, sessions, keeper (all of these as one state machine), store (SQLite), server
(decides when to answer), connection (frames on a socket), four_letter_words.  Everything before the store is pure.
"""
