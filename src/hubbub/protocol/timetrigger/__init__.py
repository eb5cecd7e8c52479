"""Time-triggered topics: who wants a sample how often, and when it is made.

Small machines: `plan` says when ticks are, `producer` keeps interests and follows the plan, `slots`
and `consumer` take one sample a slot, `clock` and `offsets` keep a common time, and `gateway` joins
all of a node. Nothing here waits, reads a clock or repairs a frame: the next tick does that.
"""
