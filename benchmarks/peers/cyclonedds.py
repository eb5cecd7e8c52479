"""Eclipse Cyclone DDS: a reliable writer and reader of octets, on loopback."""

from dataclasses import dataclass
from typing import Any

from cyclonedds.core import Policy, Qos, ReadCondition, SampleState, WaitSet
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import array, uint8, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from benchmarks.endpoint import Endpoint, OnPayload
from benchmarks.namespaces import VETH

DOMAIN = 77
CONFIGURATION = """
<CycloneDDS><Domain Id="{domain}">
  <General>
    <Interfaces><NetworkInterface name="{interface}" multicast="true"/></Interfaces>
    {datagrams}
  </General>
  <Internal><SocketReceiveBufferSize min="default" max="4MiB"/></Internal>
</Domain></CycloneDDS>"""
LARGE_DATAGRAMS = "<MaxMessageSize>65500B</MaxMessageSize><FragmentSize>65000B</FragmentSize>"
SAMPLES_MAX = 256


def octets_type(size_bytes: int) -> Any:
    """Make the topic's type: in Python only an octet array of fixed length is bytes, not a list."""

    @dataclass
    class Octets(IdlStruct, typename="Octets"):
        used_bytes: uint32
        data: array[uint8, size_bytes]  # type: ignore[type-arg, valid-type]

    return Octets


class Cyclone(Endpoint):
    """A writer that waits for its reader, a reader that takes all there is."""

    distribution = "cyclonedds"
    settings = (
        "UDP on loopback, 64 KiB datagrams, 4 MiB receive buffer, reliable, KeepAll bounded to 256 "
        "samples so that write waits, octet array (the binding's fast type), WaitSet and take"
    )

    interface, datagrams = "lo", LARGE_DATAGRAMS

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._octets = octets_type(size_bytes)
        configuration = CONFIGURATION.format(
            domain=DOMAIN, interface=self.interface, datagrams=self.datagrams
        )
        self._domain = Domain(DOMAIN, configuration)
        self._participant = DomainParticipant(DOMAIN)
        qos = Qos(
            Policy.Reliability.Reliable(max_blocking_time=duration(seconds=60)),
            Policy.History.KeepAll,
            Policy.ResourceLimits(SAMPLES_MAX, 1, SAMPLES_MAX),
        )
        if sends:
            self._writer = DataWriter(self._participant, self._topic(sends), qos)
        if receives:
            self._reader = DataReader(self._participant, self._topic(receives), qos)

    def _topic(self, name: str) -> Any:
        return Topic(self._participant, name, self._octets)

    def send(self, payload: Any) -> None:
        used_bytes = len(payload)
        if used_bytes < self._size_bytes:
            payload = payload.ljust(self._size_bytes)
        self._writer.write(self._octets(used_bytes=used_bytes, data=payload))

    def serve(self, on_payload: OnPayload) -> None:
        waitset = WaitSet(self._participant)
        waitset.attach(ReadCondition(self._reader, SampleState.NotRead))
        size_bytes = self._size_bytes
        while True:
            waitset.wait(duration(seconds=60))
            for sample in self._reader.take(SAMPLES_MAX):
                data, used_bytes = sample.data, sample.used_bytes
                if on_payload(data if used_bytes == size_bytes else data[:used_bytes]):
                    return

    def close(self) -> None:
        del self._participant


class Veth(Cyclone):
    """Between hosts."""

    settings = "UDP with the default sizes of datagrams, else as on loopback: reliable, KeepAll"
    interface, datagrams = VETH, ""
