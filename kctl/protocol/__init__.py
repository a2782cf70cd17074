"""Kafka's wire protocol: message definitions and the codecs compiled from them.

Reading order: message (the language of the definitions), apis/produce (an example of it), codec (decode, encode),
decoding and encoding (the two compilers), walk (the same definitions interpreted: slow and plainly right),
headers, registry (API keys and versions).
"""
