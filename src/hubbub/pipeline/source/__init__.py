"""The format `hubbub` of Spark: a recording as a batch or stream of rows, and rows to the bus.

What decides (where rows lie, what a range is cut into) knows nothing of Spark and is tested without
it; `spark.py` and `sink.py` are what Spark calls. Nothing here is faster than Spark's own Parquet
reader: it is for what that cannot do, which is the open segment, exact offsets, and the way back.
"""
