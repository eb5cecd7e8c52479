"""The messages of services, as a recorder takes them: like any other, on subjects of their own.

What is published in a service need not have a subject, and what has one has it in that service
alone. So it is recorded below `/service/NAME`, where sequences of each publisher count by
themselves. Who manages a service is told by events of the node (`ManagerChanged`).
"""

from typing import Any
from urllib.parse import quote

from hubbub.bare_topics import BareTopic, BareTopics
from hubbub.limits import RECORDER_TOPICS_KEPT
from hubbub.node import Node
from hubbub.protocol.delivery import Delivery
from hubbub.recorder.intake import Intake
from hubbub.service import Service
from hubbub.subscription import Subscription


class ServiceTap(Subscription):
    """Puts what is published in a service into an intake."""

    def __init__(self, node: Node, service: Service, intake: Intake) -> None:
        super().__init__(service._host)
        self._services = node.services
        self._service = service.name
        self._prefix = f"/service/{quote(service.name, safe='')}"
        self._intake = intake
        self._topics: BareTopics[tuple[str, bytes, int]] = BareTopics(
            RECORDER_TOPICS_KEPT, self._make_topic
        )
        service._enter(self)

    def deliver(self, delivery: Delivery, context: Any) -> None:
        """Take messages from the service."""
        if self._closed_reason is None:
            subject, source = delivery.topic.subject, delivery.topic.source
            with self._delivering:
                topic = self._topics[subject, source.id, source.incarnation]
                self._received += len(delivery.payloads)
                self._intake.put_run(delivery._replace(topic=topic))

    def _make_topic(self, subject: str, source_id: bytes, incarnation: int) -> BareTopic:
        own = "" if subject == self._service else subject
        return BareTopic(self._prefix + own, self._services.source_of(source_id, incarnation))
