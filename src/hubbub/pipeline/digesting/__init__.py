"""Digests of recorded messages: functions of Arrow tables that Spark's Python workers run.

Spark spreads row groups of files; each is read, and made small, by the C++ of Arrow and numpy,
never row by row (decision 0045). No Spark enters here: a worker would import it.
"""
