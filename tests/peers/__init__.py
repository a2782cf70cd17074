"""Other people's software, started for tests, and our own broker as a real process beside it.

Read `probe` (is somebody answering?), then `kctl_broker` and `apache_kafka`.
"""
