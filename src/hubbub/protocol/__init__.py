"""The protocol as pure state machines: bytes and `now` in, bursts, deliveries and events out.

Nothing here opens a socket, reads a clock or draws from a global random generator, so a run is a
function of its inputs, and the simulator runs the very code that the node runs. `core.py` composes
the machines and is all that shells see.
"""
