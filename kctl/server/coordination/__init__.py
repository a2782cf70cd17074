"""What the coordinators of groups and of transactions share.

Both keep their state in an internal topic, serve the ids in the partitions of it that this broker leads, write each
change to the log before they respond, and load a partition when they become its leader.

Reading order: partitions (which ids are served here, and when), replay (reading them), hosted (their objects), replies
(calls whose result comes later, and appends).
"""
