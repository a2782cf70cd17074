"""Kafka's wire protocol: message definitions and the codecs compiled from them.

Reading order: message (how messages are defined), apis/produce (an example), codec (decode, encode), decoding and
encoding (the two compilers), walk (a slow interpreter of the same definitions, used to test them), headers, registry
(API keys and versions).
"""
