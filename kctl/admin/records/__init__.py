"""Conditions on records, and selections of them."""
