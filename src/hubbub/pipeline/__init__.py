"""Tables of a recording, made by PySpark: in one go, bit by bit, or while it is being recorded.

Transformations are pure functions of data frames; files, streams and the bus are at the edges.
"""
