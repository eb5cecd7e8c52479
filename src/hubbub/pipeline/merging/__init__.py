"""What follows from digests: pure functions of Arrow tables, each of what is known and what is new.

They run where the run was started, because what they work on is small: a step of a live run would
otherwise spend seconds on plans for a few hundred rows (decision 0026). No Spark, no files, no
clock, and nothing here may look at single messages.
"""
