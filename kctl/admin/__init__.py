"""The operations behind the commands: async functions that take a client and return dataclasses.

Reading order: outcome (result of one item); topics, topic_changes; configs, topic_configs; offset_spec, offsets;
groups; election; partition_health, health; reassignment_spec, reassignment, reassignment_plan, log_dirs, move_progress,
reassigning (execution of moves); throttles, throttle_records, throttling (throttles of moves and their removal); where,
where_syntax, record_filter (selection of records); copy_offsets, pacing, copying (copies of records).
"""
