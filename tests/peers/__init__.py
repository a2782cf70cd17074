"""Third-party software started for tests, and kctl's own broker as a real process.

Read `probe` (readiness checks), then `kctl_broker` and `apache_kafka`.
"""
