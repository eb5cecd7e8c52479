"""A run of the pipeline sees what a recorder left that could not convert it any more."""

from pathlib import Path

import hubbub
from hubbub.cli.pipeline import _convert_rest
from tests.integration.bus import fresh_place, wait_until


def test_what_a_recorder_left_is_converted_unless_one_is_at_work(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with (
        fresh_place().open("r") as node,
        hubbub.Recorder(node, "/x", store, convert=False) as recorder,
    ):
        publisher = node.publisher("/x")
        for number in range(10):
            publisher.publish(b"%d" % number)
        wait_until(lambda: recorder.acknowledged == 10)
        _convert_rest(store)
        assert list(store.rglob("*.parquet")) == []
    _convert_rest(store)
    assert list((store / "messages").rglob("*.parquet"))
    _convert_rest(store)
