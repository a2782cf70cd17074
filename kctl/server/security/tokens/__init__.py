"""Delegation tokens (KIP-48): rules, cache, znodes and their manager."""
