"""Diagnoses a cluster: a snapshot of its state, and rules that name causes and remedies."""
