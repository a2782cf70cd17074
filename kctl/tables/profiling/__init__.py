"""Profiles of topics (`kctl tables profile`): keys, sizes, nulls, skew, disorder and schema drift in one pass.

Memory does not grow with the records: every measure is a counter, or one of the bounded sets of this package.
"""
