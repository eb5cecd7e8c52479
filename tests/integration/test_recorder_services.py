"""What is published in services is recorded, with the epoch it came in, and who managed them."""

import json
import os
from pathlib import Path
from typing import Any

import hubbub
from hubbub.gateway import Gateway, Side
from hubbub.store.reading import read_table
from hubbub.wire.services import node_key, service_key
from hubbub.wire.timed import NODE_BYTES
from tests.integration.bus import DEADLINE_S, fresh_place, tell_managers, wait_until

NAME = "hype news"


def rows(store: Path, table: str) -> list[dict[str, Any]]:
    """Return all rows of a recording."""
    return [row for piece in read_table(store, table) for row in piece.to_pylist()]


def find_closer(manager: str) -> bytes:
    """Return an id that is closer to the service than that of its manager."""
    service = int.from_bytes(service_key(NAME))

    def distance(node: bytes) -> int:
        return int.from_bytes(node_key(node)) ^ service

    drawn = iter(lambda: os.urandom(NODE_BYTES), b"")
    return next(node for node in drawn if distance(node) < distance(bytes.fromhex(manager)))


def test_messages_of_a_service_keep_their_epoch_and_each_manager_is_named(tmp_path: Path) -> None:
    place = fresh_place()
    with (
        place.open("recorder", services=True) as node,
        place.open("talker", services=True) as talker,
        hubbub.Recorder(node, "/...", tmp_path, services=[NAME], convert=False) as recorder,
    ):
        assert node.services.wait_for_members(1, DEADLINE_S)
        service, news = node.service(NAME), talker.service(NAME)
        assert service.wait_until_subscribed(DEADLINE_S)

        def publish() -> str | None:
            assert news.publish(b"no subject", wait=DEADLINE_S) == 1
            assert news.publish(b"cold", subject="/weather", wait=DEADLINE_S) == 1
            return service.manager

        first = publish()
        assert first is not None
        with place.open("closer", services=True, node_id=find_closer(first)) as closer:
            wait_until(lambda: service.manager == closer.id.hex())
            managers = {first, closer.id.hex()}
            publish()
            wait_until(lambda: recorder.acknowledged >= 4)
            names = {one.id.hex(): one.name for one in (node, talker, closer)}
    told = [row for row in rows(tmp_path, "events") if row["kind"] == "ManagerChanged"]
    # Others may have been for a moment, where one that was kept from running was taken for dead.
    by_epoch = {json.loads(row["detail"])["epoch"]: row["node_id"] for row in told}
    assert managers <= {*by_epoch.values()}
    assert all(json.loads(row["detail"])["service"] == NAME for row in told)
    # A manager that was heard of as a member, and not discovered yet, has no name.
    assert all(row["node_name"] in ("", names[row["node_id"]]) for row in told)
    messages = [row for row in rows(tmp_path, "messages") if row["service"] == NAME]
    plain = [row for row in messages if row["payload"] == b"no subject"]
    assert [row["subject"] for row in plain] == ["/service/hype%20news"] * 2
    before, after = [row["epoch"] for row in plain]
    assert before < after and {before, after} <= by_epoch.keys()
    assert {(row["source_name"], row["link"], row["hops"]) for row in messages} == {
        ("talker", "services", None)
    }
    subjects = {row["subject"] for row in messages}
    assert subjects == {"/service/hype%20news", "/service/hype%20news/weather"}


def last_managers(store: Path) -> dict[str, tuple[str, int]]:
    """Return of each service the manager of its last epoch, as a recording has it."""
    found: dict[str, tuple[str, int]] = {}
    for row in rows(store, "events"):
        told = json.loads(row["detail"]) if row["kind"] == "ManagerChanged" else {}
        if told and told["epoch"] >= found.get(told["service"], ("", 0))[1]:
            found[told["service"]] = (row["node_id"], told["epoch"])
    return found


def test_managers_of_services_that_nobody_records_are_in_the_recording(tmp_path: Path) -> None:
    place = fresh_place()
    names = [f"service-{number}" for number in range(5)] + [NAME]

    guest = hubbub.ServiceOptions(is_guest=True)
    with (
        place.open("a", services=True) as first,
        place.open("b", services=True) as second,
        place.open("recorder", services=guest) as node,
    ):
        assert node.services.wait_for_members(2, DEADLINE_S)
        for name in names:
            assert first.service(name).subscribe() is not None
            assert first.service(name).wait_until_subscribed(DEADLINE_S)
        with hubbub.Recorder(node, "/nothing", tmp_path, convert=False) as recorder:
            wait_until(lambda: len(tell_managers([first, second])) == len(names))
            before = tell_managers([first, second])
            wait_until(lambda: recorder.flush() and last_managers(tmp_path) == before)
            closer = find_closer(before[NAME][0])
            with place.open("closer", services=True, node_id=closer) as third:
                wait_until(lambda: tell_managers([third]).get(NAME, ("", 0))[0] == third.id.hex())
                after = tell_managers([first, second, third])
                wait_until(lambda: recorder.flush() and last_managers(tmp_path) == after)
            wait_until(lambda: tell_managers([first, second]).keys() == set(names))
            end = tell_managers([first, second])
        found = {one.name: (one.manager, one.epoch) for one in first.services.find()}
    assert last_managers(tmp_path) == end == found


def test_hops_tell_how_many_gateways_a_message_has_crossed(tmp_path: Path) -> None:
    here, there = fresh_place(), fresh_place()
    sides = [
        Side(name, place.domain, "127.0.0.1", place.group, place.port)
        for name, place in (("here", here), ("there", there))
    ]
    with (
        Gateway.open(sides, name="gateway"),
        here.open("recorder") as node,
        there.open("far") as far,
        hubbub.Recorder(node, "/plant/...", tmp_path, convert=False) as recorder,
        here.open("near") as near,
    ):
        for publisher in (near.publisher("/plant/near"), far.publisher("/plant/far")):
            assert publisher.wait_for_subscribers(1, DEADLINE_S)
            publisher.publish(b"x")
        wait_until(lambda: recorder.acknowledged == 2)
    assert {row["subject"]: row["hops"] for row in rows(tmp_path, "messages")} == {
        "/plant/near": 0, "/plant/far": 1,
    }  # fmt: skip
