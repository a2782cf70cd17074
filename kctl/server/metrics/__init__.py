"""Metrics under the names of Kafka 2.8's MBeans, and the HTTP endpoint from which Prometheus reads them.

What a metric measures is in its definition, in the module of its subject in `subjects`; most are computed when they
are read.  `naming` turns the names of MBeans into those of series.
"""
