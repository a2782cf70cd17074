"""Consumer groups: who shares which partitions, and how far each group has read.

Reading order: group (the theory and the data), states, events, actions, then the rules (step, joining, syncing,
rebalance, liveness, committing), offsets, snapshot, records and loading (what `__consumer_offsets` holds), ports and
coordinator (the only module here with IO, a clock or a log).
"""
