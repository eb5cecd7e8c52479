"""Services without multicast: each is managed by the node whose key is closest to its own.

Small machines: `view` and `swim` know who is there, `placement` and `ring` say who is closest,
`hops` brings frames from node to node and `bare` says them as the first version did, `listing` is
who subscribes, `manager`, `handover`, `copies`, `absent` and `fanout` look after services, `client`
asks for them, and `rendezvous` joins all of a node. Nothing here opens a socket or reads a clock.
"""
