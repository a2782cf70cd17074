"""The share coordinator (KIP-932): the state of share-partitions in the internal topic `__share_group_state`.

Reading order: state (what is stored of a share-partition, and the rules of each request, pure), records (its records),
coordinator (the share-partitions of the partitions that this broker leads), client (requests to the coordinators of the
cluster, from leaders of partitions and from group coordinators).
"""
