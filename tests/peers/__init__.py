"""Third-party software started for tests, and kctl's own broker as a real process.

Read `probe` (is somebody answering?), then `kctl_broker` and `apache_kafka`.
"""
