"""Declarations, parsing and current values of Kafka's properties.  Opens no files.

Reading order: kinds, definition (how a property is declared), subjects/ (the broker's properties), broker, topic,
listeners, properties (the file syntax), config_loading, dynamic (changes at run time), described (for DescribeConfigs),
reference (the documentation page).
"""
