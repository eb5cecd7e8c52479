"""One adapter a peer, each a small file behind `benchmarks.endpoint.Endpoint`.

An adapter chooses what the peer's own users would choose when everything must arrive, and says so
in its `settings` line. No adapter measures, counts or touches anything itself.
"""

import importlib

from benchmarks.endpoint import Endpoint

# Row of the table -> module and class. Hubbub's rows come first and are compared with all others.
ROWS = {
    "hubbub": ("hubbub", "Iterating"),
    "hubbub-batches": ("hubbub", "Batches"),
    "hubbub-inline": ("hubbub", "Inline"),
    "hubbub-loan": ("hubbub", "Lending"),
    "hubbub-multicast": ("hubbub", "Multicast"),
    "hubbub-multicast-batches": ("hubbub", "MulticastBatches"),
    "hubbub-multicast-inline": ("hubbub", "MulticastInline"),
    "pyzmq-ipc": ("pyzmq", "Ipc"),
    "pyzmq-tcp": ("pyzmq", "Tcp"),
    "zenoh": ("zenoh", "Zenoh"),
    "lcm": ("lcm", "Lcm"),
    "cyclonedds": ("cyclonedds", "Cyclone"),
    "ecal": ("ecal", "Ecal"),
    "iceoryx2": ("iceoryx2", "Waiting"),
    "iceoryx2-spin": ("iceoryx2", "Spinning"),
    "pynng-ipc": ("pynng", "Ipc"),
    "bare": ("bare", "Bare"),  # No peer: what there is to gain at all.
}
# The same between two hosts; what has only shared memory, or UNIX sockets, cannot be here.
VETH_ROWS = {
    "hubbub-veth": ("hubbub", "Veth"),
    "pyzmq-veth": ("pyzmq", "Veth"),
    "zenoh-veth": ("zenoh", "Veth"),
    "lcm-veth": ("lcm", "Veth"),
    "cyclonedds-veth": ("cyclonedds", "Veth"),
}

# By way of a process between publisher and subscribers: our manager, or a broker.
SERVICE_ROWS = {
    "hubbub-service": ("hubbub_service", "Iterating"),
    "hubbub-service-batches": ("hubbub_service", "Batches"),
    "hubbub-service-group": ("hubbub_service", "Grouped"),
    "hubbub-service-callback": ("hubbub_service", "Called"),
    "hubbub-service-inline": ("hubbub_service", "Inline"),
    "nats": ("nats", "Nats"),
    "mosquitto": ("mosquitto", "Mosquitto"),
    "mosquitto-qos1": ("mosquitto", "Acknowledged"),
}


def is_ours(row: str) -> bool:
    """Tell Hubbub's rows from the peers'."""
    return row.startswith("hubbub")


def load(row: str) -> type[Endpoint]:
    """Import the adapter of a row; raises whatever importing the peer raises."""
    module, name = (ROWS | VETH_ROWS | SERVICE_ROWS)[row]
    adapter: type[Endpoint] = getattr(importlib.import_module(f"benchmarks.peers.{module}"), name)
    return adapter
