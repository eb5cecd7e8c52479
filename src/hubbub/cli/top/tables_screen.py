"""The tables of the bus, one at a time: chosen, filtered, sorted and opened by keys or mouse."""

from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from hubbub.cli.screen import fit_widths
from hubbub.cli.terminal import shorten
from hubbub.cli.top.gather import Look
from hubbub.cli.top.sheet import BAD, COURSE, FAINT, GOOD, Order, Row, Sheet, arrange
from hubbub.cli.top.sheets import SHEETS, summarise
from hubbub.cli.top.topic_screen import TopicScreen

_ROWS_MAX: Final = 1000  # More than anybody scrolls through; the filter finds the others.
_STYLES: Final = {BAD: "bold red", GOOD: "green", FAINT: "dim", COURSE: "dodger_blue1"}
_NAMES: Final = [make.__name__ for make in SHEETS]
_TOAST_S: Final = 10
_OPENED: Final = ("topics", "schedule")  # Their rows are about a subject.
_KEYS: Final = (
    "1-6 ←→  choose a table\n"
    "↑↓ ⏎    choose a row, open it\n"
    "/       filter; Escape shows all\n"
    "s r     sort, reverse\n"
    "Space   pause, go on\n"
    "q       quit"
)


class Table(DataTable[Text]):
    """A table whose keys to the left and right choose another one, as those of the screen do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "Open", key_display="⏎"),
        Binding("left", "screen.turn(-1)", show=False),
        Binding("right", "screen.turn(1)", show=False),
    ]


class TablesScreen(Screen[None]):
    """One table of the bus at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(at + 1), f"choose({at})", show=False) for at in range(len(SHEETS))),
        Binding("left", "turn(-1)", show=False),
        Binding("right", "turn(1)", "Next", key_display="←→"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("escape", "clear", show=False),
    ]

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place
        self._seen: Look | None = None
        self._sheet = 0
        self._orders = [Order() for _ in SHEETS]
        self._rows: list[Row] = []

    def compose(self) -> ComposeResult:
        """Lay out: a line of totals, the names of the tables, one of them, the filter, the keys."""
        yield Static(f" {self._place}", id="summary")
        titles = [f"{number} {name.title()}" for number, name in enumerate(_NAMES, 1)]
        yield Tabs(*(Tab(title, id=name) for title, name in zip(titles, _NAMES, strict=True)))
        yield Table(id="table", cursor_type="row", zebra_stripes=True)
        yield Static("looking around ...", id="nothing")
        yield Input(placeholder="words to look for; Enter keeps them, Escape clears", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Let the keys go to the table."""
        self.query_one(Tabs).can_focus = False
        self.query_one(Input).display = False
        self.query_one(Table).display = False
        self.query_one(Table).focus()

    def show(self, seen: Look) -> None:
        """Show what a look saw."""
        self._seen = seen
        self._show_line(summarise(seen))
        self._show_sheet()

    def show_pause(self, *, is_paused: bool) -> None:
        """Say that nothing changes any more, or that it does."""
        if self._seen is not None:
            self._show_line("paused" if is_paused else summarise(self._seen))

    def _show_line(self, state: str) -> None:
        line = Text(f" {self._place}", style="bold")
        line.append(f"  {state}", style="not bold")
        self.query_one("#summary", Static).update(line)

    def _show_sheet(self) -> None:
        if self._seen is None:
            return
        sheet, wanted = SHEETS[self._sheet](self._seen), self.query_one(Input).value
        rows = self._rows = arrange(sheet.rows, wanted, self._orders[self._sheet])
        with self.app.batch_update():
            self._fill(sheet, rows[:_ROWS_MAX])
            nothing = self.query_one("#nothing", Static)
            nothing.display = not rows
            what = f"nothing has “{wanted}” in it" if wanted and sheet.rows else sheet.nothing
            nothing.update(Text(what))

    def _fill(self, sheet: Sheet, rows: list[Row]) -> None:
        """Write the table anew, and leave the cursor on the row that it was on."""
        table = self.query_one(Table)
        chosen, scrolled = _chosen(table), table.scroll_y
        table.clear(columns=True)
        titles = self._titles(sheet)
        texts = [titles, *([cell.text for cell in row.cells] for row in rows)]
        room = self.size.width - 2 - table.styles.scrollbar_size_vertical
        widths = fit_widths(sheet.columns, texts, room)
        for place, width in enumerate(widths):
            table.add_column(_cell(sheet, place, titles[place]), width=width)
        for row in rows:
            shown = [
                _cell(sheet, place, shorten(cell.text, widths[place]), cell.tone)
                for place, cell in enumerate(row.cells)
            ]
            table.add_row(*shown, key=row.key)
        places = {row.key: place for place, row in enumerate(rows)}
        table.display = bool(rows)
        if rows and self.focused is None:  # It was empty, and what is not shown has no focus.
            table.focus()
        if chosen in places:
            table.move_cursor(row=places[chosen], animate=False, scroll=False)
            table.scroll_to(y=scrolled, animate=False, force=True)

    def _titles(self, sheet: Sheet) -> list[str]:
        """Name the columns, with an arrow at the one that the table is sorted by."""
        titles = [column.title for column in sheet.columns]
        order = self._orders[self._sheet]
        if order.column is not None:
            titles[order.column] += "▼" if order.is_descending else "▲"
        return titles

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Show another table."""
        self._sheet = _NAMES.index(str(event.tab.id))
        self._show_sheet()
        self.refresh_bindings()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the topic that a row is about; of an event, show all of its words."""
        key, name = event.row_key.value, _NAMES[self._sheet]
        if self._seen is None or key is None:
            return
        if name in _OPENED:
            self.app.push_screen(TopicScreen(key.split(" ")[0], self._seen))
        elif name == "events":
            words = next((row.cells[-1].text for row in self._rows if row.key == key), "")
            self.app.notify(words, timeout=_TOAST_S, markup=False)

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column that was clicked, the other way round at the second click."""
        if self._orders[self._sheet].column == event.column_index:
            self.action_reverse()
        else:
            self._sort(Order(event.column_index))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._show_sheet()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, and go back to the table."""
        event.input.display = bool(event.value)
        self.query_one(Table).focus()

    def action_choose(self, place: int) -> None:
        """Show a table by its number."""
        self.query_one(Tabs).active = _NAMES[place]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to open a row only where there is something behind it."""
        return action != "open" or _NAMES[self._sheet] in (*_OPENED, "events")

    def action_open(self) -> None:
        """Open what the row at the cursor is about."""
        self.query_one(Table).action_select_cursor()

    def action_help(self) -> None:
        """Say what the keys do."""
        self.app.notify(_KEYS, title="Keys", timeout=_TOAST_S, markup=False)

    def action_turn(self, step: int) -> None:
        """Show the table to the left or right."""
        self.action_choose((self._sheet + step) % len(SHEETS))

    def action_filter(self) -> None:
        """Ask for words to look for."""
        entry = self.query_one(Input)
        entry.display = True
        entry.focus()

    def action_clear(self) -> None:
        """Show everything again."""
        entry = self.query_one(Input)
        entry.value = ""
        entry.display = False
        self.query_one(Table).focus()

    def action_sort(self) -> None:
        """Sort by the next column."""
        if self._seen is not None:
            columns = SHEETS[self._sheet](self._seen).columns
            self._sort(self._orders[self._sheet].next(columns))

    def action_reverse(self) -> None:
        """Sort the other way round."""
        order = self._orders[self._sheet]
        self._sort(order._replace(is_descending=not order.is_descending))

    def _sort(self, order: Order) -> None:
        self._orders[self._sheet] = order
        self._show_sheet()


def _cell(sheet: Sheet, place: int, text: str, tone: str = "") -> Text:
    return Text(
        text, style=_STYLES.get(tone, ""), overflow="ellipsis", no_wrap=True,
        justify="right" if sheet.columns[place].is_number else "left",
    )  # fmt: skip


def _chosen(table: DataTable[Any]) -> str | None:
    if not table.row_count:
        return None
    return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
