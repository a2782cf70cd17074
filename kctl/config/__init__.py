"""Kafka's properties as tables: what may be set, what it means, what it is now.  No file is opened here.

Reading order: kinds, rules, definition (how a property is declared), subjects/ (the broker's properties), broker,
topic, listeners, properties (the file syntax), loading, dynamic (changes at run time), described (what DescribeConfigs
answers), reference (the page for people).
"""
