"""Several brokers of one machine as one service: `kctl broker start --processes N`.

One broker uses one core.  The supervisor starts N of them as processes, restarts those that end, and stops all.
"""
