"""Carries a plan out on one node, and takes it back."""
