"""A recording in Spark, cell by cell: `python examples/recording_in_spark.py STORE`.

Without a STORE it makes a small one first. Editors that know `# %%` run it as a notebook.
"""

# %% A recording: yours, or one of two sensors.
import sys
import tempfile
from pathlib import Path

import hubbub

if len(sys.argv) > 1:
    store = Path(sys.argv[1])
else:
    store = Path(tempfile.mkdtemp()) / "recording"
    with hubbub.open("plant") as node, hubbub.Recorder(node, "/plant/...", store) as recorder:
        for number in range(100):
            node.publish("/plant/line1/temp", b"%.1f" % (20 + number / 10))
            node.publish("/plant/line2/temp", b"18.5")
        recorder.flush()

# %% Spark, and in it the messages of all lines; the subjects are matched as on the bus.
from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.session import start

spark = start()
messages = spark.read.format("hubbub").option("subjects", "/plant/*/temp").load(str(store))

# %% Payloads are bytes: these hold a number as text.
temperatures = messages.select(
    "subject",
    F.timestamp_micros(F.expr("received_ns div 1000")).alias("received"),
    F.col("payload").cast("string").cast("double").alias("celsius"),
)
temperatures.show(3, truncate=False)

# %% Per line: how many, how warm, and how late they came.
lateness_ms = (F.col("received_ns") - F.col("published_ns")) / 1e6
summary = temperatures.groupBy("subject").agg(
    F.count("*").alias("messages"), F.round(F.avg("celsius"), 2).alias("mean")
)
lateness = messages.groupBy("subject").agg(
    F.round(F.percentile_approx(lateness_ms, 0.99), 3).alias("p99_ms")
)
summary.join(lateness, "subject", "inner").orderBy("subject").show(truncate=False)
