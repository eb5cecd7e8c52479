"""Gateways: what crosses from one network to another, and what does not.

Small machines: `router` decides by what the header of a frame says, as RODOS has it; `relay` joins
the cores of one gateway and passes on what nodes beyond it want; `rodos` is our place in a network
of RODOS nodes. Nothing here opens a socket.
"""
