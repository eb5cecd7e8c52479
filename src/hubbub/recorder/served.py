"""The messages of services, as a recorder takes them: like any other, on subjects of their own.

What is published in a service need not have a subject, and what has one has it in that service
alone. So it is recorded below `/service/NAME`, where sequences of each publisher count by
themselves. Who manages a service is told by events of the node (`ManagerChanged`).
"""

from typing import Any
from urllib.parse import quote

from hubbub.limits import RECORDER_TOPICS_KEPT
from hubbub.node import Node
from hubbub.protocol.delivery import Delivery
from hubbub.recorder.intake import Intake
from hubbub.service import Service
from hubbub.service_host import ServiceTopic
from hubbub.subscription import Subscription


class ServiceTap(Subscription):
    """Puts what is published in a service into an intake."""

    def __init__(self, node: Node, service: Service, intake: Intake) -> None:
        super().__init__(service._host)
        self._services = node.services
        self._service = service.name
        self._prefix = f"/service/{quote(service.name, safe='')}"
        self._intake = intake
        self._topics: dict[tuple[str, bytes, int], ServiceTopic] = {}
        service._enter(self)

    def deliver(self, delivery: Delivery, context: Any) -> None:
        """Take messages from the service."""
        if self._closed_reason is None:
            with self._delivering:
                self._received += len(delivery.payloads)
                self._intake.put_run(delivery._replace(topic=self._topic_of(delivery)))

    def _topic_of(self, delivery: Delivery) -> ServiceTopic:
        subject, source = delivery.topic.subject, delivery.topic.source
        key = (subject, source.id, source.incarnation)
        topic = self._topics.get(key)
        if topic is None:
            if len(self._topics) >= RECORDER_TOPICS_KEPT:
                self._topics.clear()
            own = "" if subject == self._service else subject
            named = self._services.source_of(source.id, source.incarnation)
            topic = self._topics[key] = ServiceTopic(self._prefix + own, named)
        return topic
