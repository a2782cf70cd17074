"""Metrics under the names of Kafka 2.8's MBeans, and the HTTP endpoint from which Prometheus reads them.

Metrics are defined and documented in `subjects`, one module per subject; most values are computed when they are read.
`naming` converts MBean names to the names of time series.
"""
