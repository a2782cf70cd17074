"""The operations behind the commands: async functions that take a client and return dataclasses.

Packages by subject, from the bottom: security; topics; placement (of replicas: plans, reassignments, throttles,
elections); groups (lag, offsets, history); cluster (health, features, restarts); records (conditions, deletion);
copy and perf; sampling (`kctl top`); state (`kctl plan` and `apply`).
"""
