"""Consumer groups: how their members share partitions, and the offsets that they commit.

Reading order: group (theory and data), states, events, actions, then the rules (step, joining, syncing, rebalance,
liveness, committing), offsets, snapshot, records and group_loading (the contents of `__consumer_offsets`); then the
modules with a clock, a log and timers: coordinator (the API for handlers), runner (performs the actions of the rules),
offsets_writer.
"""
