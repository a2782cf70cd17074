"""Transactions: writes to many partitions, and commits of offsets, that become visible together or not at all.

Reading order: transaction (the theory and the data), states, events, actions, step (the rules), snapshot, records and
loading (what `__transaction_state` holds), markers (telling the partitions), partition_markers (a partition's leader is
told), ports and coordinator (clocks, logs and tasks).
"""
