"""What is inside a partition: record batches, their codecs, their checks.  Pure.

Reading order: compression, batch, build, control, validate, internal_topics.
"""
