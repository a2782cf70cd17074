"""Consumer groups: who shares which partitions, and how far each group has read.

Reading order: group (the theory and the data), states, events, actions, then the rules (step, joining, syncing,
rebalance, liveness, committing), offsets, snapshot, records and loading (what `__consumer_offsets` holds); then what
has a clock, a log and timers: coordinator (what clients may ask), runner (performs what the rules decide),
offsets_writer.
"""
