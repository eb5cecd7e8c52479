"""`hubbub top` on a real bus: through textual's pilot, and as a user runs it in a terminal."""

import asyncio
import os
import pty
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static, Tabs

import hubbub
from hubbub.cli.top import app as app_module
from hubbub.cli.top.app import Top
from hubbub.cli.top.gather import Gatherer, Look
from hubbub.cli.top.sheets import SHEETS
from hubbub.cli.top.tables_screen import Table
from hubbub.cli.top.topic_screen import TopicScreen
from tests.commands.test_cli import TIMEOUT_S, Bus, one_line
from tests.integration.bus import DEADLINE_S, Events, Place, fresh_place, wait_until

GUEST = hubbub.ServiceOptions(is_guest=True, is_open=False)


class Pose(msgspec.Struct):
    """A typed payload."""

    x: float
    frame: str


class Fleet:
    """A bus with something in every table."""

    def __init__(self, place: Place) -> None:
        self.car, self.plant = place.open("car"), place.open("plant")
        self.pose = self.car.publisher("/car/pose", type=Pose)
        self.temperature = self.plant.publisher("/plant/temp")
        self.car.produce("/car/speed", lambda: b"13.9")
        self.plant.consume("/car/speed", period_ms=20, callback=lambda _: None)
        self.plant.subscribe("/car/...", lambda _: None)
        self.car.service("news").subscribe(lambda _: None)

    def publish(self) -> None:
        """Let something flow."""
        self.pose.publish(Pose(1.5, "map"))
        self.temperature.publish(b"21.5")

    def close(self) -> None:
        """Leave."""
        self.car.close()
        self.plant.close()


@contextmanager
def watched(pattern: str = "/...") -> Iterator[tuple[Fleet, Gatherer]]:
    place = fresh_place()
    with place.open("top", services=GUEST) as node, Gatherer(node, pattern) as gatherer:
        fleet = Fleet(place)
        try:
            yield fleet, gatherer
        finally:
            fleet.close()


@asynccontextmanager
async def shown(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Fleet, Pilot[None]]]:
    monkeypatch.setattr(app_module, "REFRESH_S", 0.3)
    with watched() as (fleet, gatherer):
        async with Top(gatherer.look, "here").run_test(size=(80, 24), notifications=True) as pilot:
            yield fleet, pilot


async def until(pilot: Pilot[None], is_so: Callable[[], Any]) -> None:
    """Wait until the screen shows something."""
    end_s = asyncio.get_running_loop().time() + DEADLINE_S
    while not is_so():
        assert asyncio.get_running_loop().time() < end_s, f"never seen:\n{picture(pilot)}"
        await pilot.pause(0.05)


def picture(pilot: Pilot[None]) -> str:
    """Return the characters on the screen."""
    lines = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in line) for line in lines)


def first_cells(pilot: Pilot[None]) -> list[str]:
    table = pilot.app.screen.query_one(Table)
    return [str(table.get_row_at(at)[0]) for at in range(table.row_count)]


def play(monkeypatch: pytest.MonkeyPatch, work: Callable[[Fleet, Pilot[None]], Awaitable[None]]):
    """Run a piece of work on the screen."""

    async def run() -> None:
        async with shown(monkeypatch) as (fleet, pilot):
            await work(fleet, pilot)

    asyncio.run(run())


def test_every_table_shows_what_is_on_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(fleet: Fleet, pilot: Pilot[None]) -> None:
        expected = {
            "1": ["/car/pose", "/car/speed", "/plant/temp", "2 nodes"],
            "2": ["car", "plant", "multicast"],
            "3": ["multicast", "(lo)"],
            "4": ["/car/speed", "makes", "wants", "20 ms"],
            "5": ["news"],
            "6": ["peer joined: plant"],
        }
        for key, words in expected.items():
            await pilot.press(key)
            await until(pilot, lambda words=words: all(one in picture(pilot) for one in words))
            assert pilot.app.screen.query_one(Table).virtual_size.width <= 80
        (channel,) = fleet.car.channels
        assert f" on {channel.name}" not in picture(pilot), "all events are of the only channel"
        await pilot.press("enter")  # An event that is cut is shown whole.
        await until(pilot, lambda: pilot.app.screen.query("Toast"))

    play(monkeypatch, work)


def test_topics_are_filtered_and_sorted_by_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(fleet: Fleet, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: first_cells(pilot) == ["/car/pose", "/car/speed", "/plant/temp"])
        await pilot.press("s", "r")
        await until(pilot, lambda: first_cells(pilot)[0] == "/plant/temp")
        assert "subject▼" in picture(pilot)
        await pilot.press("slash", *"car sp", "enter")
        await until(pilot, lambda: first_cells(pilot) == ["/car/speed"])
        await pilot.press("slash", *"xyz")
        await until(pilot, lambda: "nothing has “xyz” in it" in picture(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: len(first_cells(pilot)) == 3)
        assert not pilot.app.screen.query_one(Input).display

    play(monkeypatch, work)


def test_keys_go_on_working_after_a_table_that_was_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(fleet: Fleet, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(first_cells(pilot)) == 3)
        await pilot.press("slash", *"xyz", "enter")  # No table has it in it, so none has rows.
        await until(pilot, lambda: not pilot.app.screen.query_one(Table).display)
        await pilot.press("right")
        await until(pilot, lambda: pilot.app.screen.query_one(Tabs).active == "nodes")
        await pilot.press("left", "escape")
        await until(pilot, lambda: len(first_cells(pilot)) == 3)
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TopicScreen))

    play(monkeypatch, work)


def test_rows_offer_to_be_opened_where_something_is_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(fleet: Fleet, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Open" in picture(pilot))
        await pilot.press("2")
        await until(pilot, lambda: "Open" not in picture(pilot))
        await pilot.press("question_mark")
        await until(pilot, lambda: "choose a table" in picture(pilot))

    play(monkeypatch, work)


def test_pattern_chooses_the_topics_that_are_listed() -> None:
    with watched("/plant/...") as (fleet, gatherer):

        def listed() -> list[str]:
            fleet.publish()
            return [row.key for row in SHEETS[0](gatherer.look()).rows]

        wait_until(lambda: len(gatherer.look().peers) == 2 and listed())
        assert listed() == ["/plant/temp"]


def test_topic_opens_with_its_decoded_payload_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(fleet: Fleet, pilot: Pilot[None]) -> None:
        def flows(*words: str) -> bool:
            fleet.publish()
            return all(one in picture(pilot) for one in words)

        await until(pilot, lambda: "/car/pose" in first_cells(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TopicScreen))
        await until(pilot, lambda: flows('"frame": "map"', "wanted by plant#", "Pose"))
        for key in ("s", "slash", "1"):  # Keys of the tables do nothing here.
            await pilot.press(key)
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen.query(Tabs))

    play(monkeypatch, work)


def test_pause_while_it_looks_is_not_overwritten_by_what_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app_module, "REFRESH_S", 0.01)
    is_at_it, may_go_on = threading.Event(), threading.Event()

    async def run() -> None:
        with watched() as (_, gatherer):
            looks = 0

            def look() -> Look:
                nonlocal looks
                looks += 1
                if looks == 2:
                    is_at_it.set()
                    assert may_go_on.wait(DEADLINE_S)
                return gatherer.look()

            async with Top(look, "here").run_test(size=(80, 24)) as pilot:
                await until(pilot, is_at_it.is_set)
                await pilot.press("space")
                await until(pilot, lambda: "paused" in picture(pilot))
                may_go_on.set()
                await pilot.pause(0.5)
                assert "paused" in picture(pilot) and looks == 2

    asyncio.run(run())


def test_pause_stops_looking_until_it_is_pressed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(fleet: Fleet, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: first_cells(pilot))
        await pilot.press("space")
        await until(pilot, lambda: "paused" in picture(pilot))
        await pilot.pause(0.2)
        assert "paused" in str(pilot.app.screen.query_one("#summary", Static).content)
        await pilot.press("space")
        await until(pilot, lambda: "nodes" in picture(pilot))

    play(monkeypatch, work)


def test_cursor_stays_on_its_row_when_the_table_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(fleet: Fleet, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(first_cells(pilot)) == 3)
        await pilot.press("down", "down")
        fleet.plant.publisher("/a/first")
        await until(pilot, lambda: first_cells(pilot)[0] == "/a/first")
        await until(pilot, lambda: pilot.app.screen.query_one(Table).cursor_row == 3)

    play(monkeypatch, work)


def test_look_that_ends_when_the_screen_is_being_closed_is_not_shown() -> None:
    with watched() as (_fleet, gatherer):
        looks = []

        def look() -> Look:
            looks.append(gatherer.look())
            if len(looks) > 1:
                wait_until(lambda: not top._tables.query("#summary"))
            return looks[-1]

        async def close_while_it_looks() -> None:
            async with top.run_test() as pilot:
                await until(pilot, lambda: len(looks) > 1)

        top = Top(look, "here")
        asyncio.run(close_while_it_looks())


def test_look_counts_messages_and_samples() -> None:
    with watched() as (fleet, gatherer):
        fleet.pose.wait_for_subscribers(2, DEADLINE_S)
        fleet.publish()

        def flowing() -> dict[str, int]:
            return {one.subject: one.messages for one in gatherer.look().topics}

        wait_until(lambda: {"/car/pose", "/car/speed"} <= flowing().keys())
        sampled = [one for one in gatherer.look().topics if one.is_sampled]
        assert [one.newest.preview for one in sampled] == [b"13.9"]


def test_looking_at_a_schedule_drops_nothing() -> None:
    place, events = fresh_place(), Events()
    with place.open("looks", on_event=events) as node, place.open("makes") as other:
        with node.schedule() as schedule:
            other.produce("/car/speed", lambda: b"13.9")
            consumer = other.consume("/car/speed", period_ms=5)
            wait_until(schedule.producers)
            for _ in range(250):  # Slow consumers are told of once a second.
                assert consumer.receive(DEADLINE_S) is not None
        assert events.of(hubbub.SlowConsumer) == []


def test_top_without_a_terminal_says_what_there_is_instead() -> None:
    done = Bus().run("top")
    assert done.returncode == 2
    assert "hubbub ls --rate 1" in one_line(done.stderr)


@pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"\x03", 130)])
def test_top_runs_in_a_terminal_and_ends_at_q_and_at_ctrl_c(key: bytes, code: int) -> None:
    ours, theirs = pty.openpty()
    bus = Bus()
    bus.environment |= {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    with bus.process("top", stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while b"Events" not in seen:
            seen += os.read(ours, 65536)
        os.write(ours, key)
        while True:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # The other end is closed.
                break
        assert process.wait(TIMEOUT_S) == code
    os.close(ours)
    assert b"Traceback" not in seen


def test_missing_extra_is_one_line_with_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['textual'] = None; sys.argv = ['hubbub', 'top'];"
        "from hubbub.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 2
    assert "pip install 'hubbub[top]'" in one_line(done.stderr)
