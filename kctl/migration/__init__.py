"""From ZooKeeper to KRaft and back: what a cluster of the ZooKeeper era stores, and the files of a KRaft cluster.

A function reads, or decides, or writes; what decides takes and returns values.
"""
