"""What commands do, without a terminal: async functions, a client in, dataclasses out.

Reading order: outcome (how one item went); topics, topic_changes, topic_configs; offset_spec, offsets; groups.
"""
