"""`hubbub top` on the terminal: looks at the bus each second, and lets its screens show it."""

import asyncio
import time
from collections.abc import Callable
from typing import ClassVar, Final

from textual.app import App
from textual.binding import Binding, BindingType

from hubbub.cli.session import EXIT_INTERRUPTED
from hubbub.cli.top.gather import Look
from hubbub.cli.top.tables_screen import TablesScreen
from hubbub.cli.top.topic_screen import TopicScreen

REFRESH_S: Final = 1.0


class Top(App[None]):
    """The bus, live; `look` says what is there, and may take its time."""

    CSS_PATH = "top.tcss"
    TITLE = "hubbub top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
    ]

    def __init__(self, look: Callable[[], Look], place: str) -> None:
        super().__init__()
        self.is_paused = False
        self._look = look
        self._tables = TablesScreen(place)

    async def on_mount(self) -> None:
        """Show the tables, and begin to look."""
        await self.push_screen(self._tables)
        self.run_worker(self._keep_looking())

    async def _keep_looking(self) -> None:
        due_s = time.monotonic()
        while True:
            if not self.is_paused:
                seen = await asyncio.to_thread(self._look)
                if not self.is_paused:  # Else it was pressed meanwhile.
                    self._show(seen)
            due_s = max(due_s + REFRESH_S, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())

    def _show(self, seen: Look) -> None:
        """Let the screens show it; one that is just being opened or closed has nothing to fill."""
        if not self.is_running:
            return
        self._tables.show(seen)
        if isinstance(self.screen, TopicScreen) and self.screen.is_mounted:
            self.screen.show(seen)

    def action_interrupt(self) -> None:
        """End as every command does on Ctrl-C."""
        self.exit(return_code=EXIT_INTERRUPTED)

    def action_pause(self) -> None:
        """Look no more, or look again."""
        self.is_paused = not self.is_paused
        self._tables.show_pause(is_paused=self.is_paused)
