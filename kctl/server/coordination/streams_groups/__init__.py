"""The rules of streams groups (KIP-1071), as of Kafka 4.3.

The members of a group are the threads of a Kafka Streams application.  They send its topology; the group coordinator
derives its tasks, creates its internal topics and assigns the tasks.  `kctl.server.coordination.groups` uses these
rules for groups of this type.
"""
