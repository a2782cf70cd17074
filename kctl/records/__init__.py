"""The content of a partition: record batches, compression, validation, records of internal topics.  Pure.

Reading order: compression, batch, build, control, validate, internal/topics.
"""
