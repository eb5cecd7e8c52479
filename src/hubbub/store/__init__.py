"""Where a recording lies: a journal that is written, and the Parquet files that are read."""
