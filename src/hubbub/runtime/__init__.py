"""Where time and threads live: the I/O thread, the delivery pool, and the queues of subscriptions.

Protocol rules may not enter: the runtime calls the machines at the right moment and knows nothing
of what they say to each other.
"""
