"""The recordings that a query reads: one store, or all in a folder, and how far each has come."""

from pathlib import Path

from hubbub.errors import ConfigurationError, StoreError
from hubbub.pipeline.source.files import find_time
from hubbub.pipeline.source.options import EARLIEST, Options, Where
from hubbub.pipeline.source.planner import Position, Span, cut, lost, ordered, spans_between
from hubbub.pipeline.source.rows import report_loss
from hubbub.pipeline.source.whereabouts import MESSAGES, Hint, Whereabouts, find_stores
from hubbub.store.checkpoints import advance


class Recordings:
    """All recordings below a path; stores that are added are found when they are looked for."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._known: dict[Path, Whereabouts] = {}

    def by_recorder(self) -> dict[str, Whereabouts]:
        """Return the recordings that there are."""
        options = self._options
        for path in find_stores(options.path):
            if path not in self._known:
                self._known[path] = Whereabouts(path, options.table)
        recordings: dict[str, Whereabouts] = {}
        for where in self._known.values():
            other = recordings.setdefault(where.recorder, where)
            if other is not where:
                raise StoreError(
                    f"{other.store} and {where.store} are copies of one recording"
                    f" ({where.recorder}): read one of them"
                )
        return recordings

    def ends(self) -> Position:
        """Return how far each recording has come."""
        return ordered({name: where.end() for name, where in self.by_recorder().items()})

    def resolve(self, place: Where) -> Position:
        """Turn what an option says into a position."""
        recordings = self.by_recorder()
        if isinstance(place, dict):
            unknown = sorted(place.keys() - recordings.keys())
            if unknown:
                raise ConfigurationError(
                    f"no recorder {', '.join(unknown)} in {self._options.path}; there are"
                    f" {', '.join(sorted(recordings))}"
                )
            return ordered({name: place.get(name, 0) for name in recordings})
        if isinstance(place, int):
            return ordered({name: find_time(where, place) for name, where in recordings.items()})
        if place == EARLIEST:
            return ordered({name: where.extent().first for name, where in recordings.items()})
        return self.ends()

    def plan(
        self, start: Position, end: Position, *, is_stable: bool = False
    ) -> list[tuple[Path, Span, Hint | None]]:
        """Cut what lies between two positions into what tasks read; say what is lost of it.

        A stable plan is the same whatever the files: a batch that is run again has the same tasks.
        """
        recordings = self.by_recorder()
        planned: list[tuple[Path, Span, Hint | None]] = []
        for span in spans_between(start, end):
            where = recordings.get(span.recorder)
            if where is None:
                raise StoreError(
                    f"the recording of {span.recorder} is gone from {self._options.path}"
                )
            extent = where.extent()
            is_new = span.recorder not in start  # Nobody has asked for what was before.
            missing = [] if is_new else list(lost(span, extent))
            if where.table != MESSAGES:
                # Numbers are shared by tables: the end of one of them is no loss.
                missing = [one for one in missing if one.first < extent.first]
            report_loss(missing, where, is_failure=self._options.is_loss_failure)
            there = span._replace(
                first=max(span.first, extent.first), end=min(span.end, extent.end)
            )
            seams = () if is_stable else extent.seams
            pieces = cut(there, seams, self._options.rows_per_partition)
            planned += [(where.store, piece, where.hint(piece.first)) for piece in pieces]
        return planned

    def keep_from(self, position: Position) -> None:
        """Tell the stores what is still needed, if the reader has a name: it will not be pruned."""
        if self._options.checkpoint:
            for recorder, where in self.by_recorder().items():
                needs = {where.table: position.get(recorder, 0)}
                advance(where.store, self._options.checkpoint, needs)

    def close(self) -> None:
        """Let go of open files."""
        for where in self._known.values():
            where.close()
