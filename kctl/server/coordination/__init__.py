"""Shared code of the group coordinator and the transaction coordinator, which have packages of their own.

Both keep their state in an internal topic, serve the ids in the partitions of it that this broker leads, write each
change to the log before they respond, and load a partition when they become its leader.

Reading order: partitions (which ids are served here, and when), replay and partition_loading (how a partition is
loaded), ports, replies, appending and append_errors (requests and their results), periodic_checks.
"""
