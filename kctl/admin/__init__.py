"""What commands do, without a terminal: async functions, a client in, dataclasses out.

Reading order: outcome (how one item went); topics, topic_changes; configs, topic_configs; offset_spec, offsets; groups;
election; partition_health, health; reassignment_spec, reassignment, reassignment_plan, log_dirs, move_progress,
reassigning (moves from the plan to the end); throttles, throttle_records, throttling (what a move must give back).
"""
