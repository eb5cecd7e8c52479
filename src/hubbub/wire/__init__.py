"""Bytes <-> values: no state, no clock, no input or output.

A decoder answers None to anything malformed and never raises; what a peer sends is counted by those
who called it, not handled here.
"""
