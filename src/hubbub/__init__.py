"""Hubbub: a message bus without a hub. `hubbub.open()` and go.

Everything public is listed in `__all__`; everything else may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hubbub.awareness import RemotePeer, RemotePublisher, RemoteSubscriber
from hubbub.channel import Channel
from hubbub.connection import Connection
from hubbub.consumer import Consumer, ConsumerStatistics
from hubbub.data_types import DataTypeId, register_data_type
from hubbub.errors import (
    Backpressure,
    ClosedError,
    ConfigurationError,
    HubbubError,
    LinkError,
    MissingExtra,
    PayloadError,
    StoreError,
    SubjectError,
)
from hubbub.events import (
    CallbackFailed,
    ClockStepped,
    Closed,
    DataTypeMismatch,
    DeadlineMissed,
    Event,
    GapAbandoned,
    InterestRefused,
    LinkDown,
    LinkUp,
    ManagerChanged,
    Nagging,
    NoCommonLink,
    NothingProduced,
    PayloadRejected,
    PeerJoined,
    PeerLeft,
    PeerRefused,
    PeriodGranted,
    PublisherMatched,
    PublisherUnmatched,
    SampleFailed,
    SchemaMismatch,
    ServiceUnavailable,
    SlowConsumer,
    Starved,
    SubscriberMatched,
    SubscriberUnmatched,
    TicksSkipped,
    VersionMismatch,
)
from hubbub.links.faults import Faults
from hubbub.links.tcp_options import TcpOptions
from hubbub.loan import Loan
from hubbub.message import Batch, Message, ReplayedMessage, Source
from hubbub.node import Node
from hubbub.opening import open
from hubbub.producer import Producer, ProducerStatistics
from hubbub.protocol.settings import Settings
from hubbub.publisher import Publisher
from hubbub.runtime.logs import set_log
from hubbub.schedule import Schedule, ScheduledConsumer, ScheduledProducer
from hubbub.schema import Schema
from hubbub.service_options import ServiceOptions
from hubbub.service_statistics import ServicesStatistics
from hubbub.statistics import ChannelStatistics, NodeStatistics
from hubbub.subjects import check_pattern, check_subject, matches
from hubbub.subscription import Subscription
from hubbub.vehicle import DirectMessage, GatewayStatistics, Mail, Vehicle, VehicleAddress

if TYPE_CHECKING:
    from hubbub.recorder import Player, Recorder, RecorderStatistics
    from hubbub.service import Service
    from hubbub.services import Services

__all__ = [
    "Backpressure",
    "Batch",
    "CallbackFailed",
    "Channel",
    "ChannelStatistics",
    "ClockStepped",
    "Closed",
    "ClosedError",
    "ConfigurationError",
    "Connection",
    "Consumer",
    "ConsumerStatistics",
    "DataTypeId",
    "DataTypeMismatch",
    "DeadlineMissed",
    "DirectMessage",
    "Event",
    "Faults",
    "GapAbandoned",
    "GatewayStatistics",
    "HubbubError",
    "InterestRefused",
    "LinkDown",
    "LinkError",
    "LinkUp",
    "Loan",
    "Mail",
    "ManagerChanged",
    "Message",
    "MissingExtra",
    "Nagging",
    "NoCommonLink",
    "Node",
    "NodeStatistics",
    "NothingProduced",
    "PayloadError",
    "PayloadRejected",
    "PeerJoined",
    "PeerLeft",
    "PeerRefused",
    "PeriodGranted",
    "Player",
    "Producer",
    "ProducerStatistics",
    "Publisher",
    "PublisherMatched",
    "PublisherUnmatched",
    "Recorder",
    "RecorderStatistics",
    "RemotePeer",
    "RemotePublisher",
    "RemoteSubscriber",
    "ReplayedMessage",
    "SampleFailed",
    "Schedule",
    "ScheduledConsumer",
    "ScheduledProducer",
    "Schema",
    "SchemaMismatch",
    "Service",
    "ServiceOptions",
    "ServiceUnavailable",
    "Services",
    "ServicesStatistics",
    "Settings",
    "SlowConsumer",
    "Source",
    "Starved",
    "StoreError",
    "SubjectError",
    "SubscriberMatched",
    "SubscriberUnmatched",
    "Subscription",
    "TcpOptions",
    "TicksSkipped",
    "Vehicle",
    "VehicleAddress",
    "VersionMismatch",
    "check_pattern",
    "check_subject",
    "matches",
    "open",
    "register_data_type",
    "set_log",
]


_LATER = {
    **dict.fromkeys(("Player", "Recorder", "RecorderStatistics"), "hubbub.recorder"),
    "Service": "hubbub.service",
    "Services": "hubbub.services",
}


def __getattr__(name: str) -> Any:
    """Import the recorder, and services, when they are first asked for: few programs need them."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
