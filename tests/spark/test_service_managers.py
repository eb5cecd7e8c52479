"""The table of managers, made of a real recording, agrees with what the nodes say."""

from pathlib import Path

from pyspark.sql import SparkSession

import hubbub
from hubbub.pipeline import tables
from hubbub.pipeline.run import Pipeline, make_setup
from hubbub.wire.services import distance, node_key, service_key
from tests.integration.bus import DEADLINE_S, fresh_place, tell_managers, wait_until

NAMES = [f"service-{number}" for number in range(4)]


def _closer(name: str, than: str) -> bytes:
    key = service_key(name)
    ids = (number.to_bytes(12, "big") for number in range(1 << 20))
    bound = distance(node_key(bytes.fromhex(than)), key)
    return next(one for one in ids if distance(node_key(one), key) < bound)


def test_table_of_managers_is_what_nodes_say_after_a_hand_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = fresh_place()
    guest = hubbub.ServiceOptions(is_guest=True)
    with (
        place.open("a", services=True) as first,
        place.open("b", services=True) as second,
        place.open("recorder", services=guest) as node,
        hubbub.Recorder(node, "/nothing", tmp_path / "store") as recorder,
    ):
        assert node.services.wait_for_members(2, DEADLINE_S)
        for name in NAMES:
            second.service(name).subscribe()
            assert second.service(name).wait_until_subscribed(DEADLINE_S)
        before = wait_until(
            lambda: len(said := tell_managers([first, second])) == len(NAMES) and said
        )
        wait_until(lambda: len(node.services.find()) == len(NAMES))

        def find() -> dict[str, tuple[str, int]]:
            return {one.name: (one.manager, one.epoch) for one in node.services.find()}

        closer = _closer(NAMES[0], before[NAMES[0]][0])
        with place.open("closer", services=True, node_id=closer) as third:
            nodes = [first, second, third]
            wait_until(lambda: tell_managers(nodes).get(NAMES[0], ("", 0))[0] == third.id.hex())
            # One that was kept from running asks before it serves on: for a moment nobody does.
            said = wait_until(
                lambda: len(said := tell_managers(nodes)) == len(NAMES) and said == find() and said
            )
            recorder.close()
    setup = make_setup(watermark_s=1.0)
    pipeline = Pipeline(spark, tmp_path / "store", tmp_path / "tables", setup)
    with pipeline.versions.locked():
        pipeline.run_batch()
    rows = tables.read(tmp_path / "tables", "service_managers").to_pylist()
    last = {
        name: max((row["epoch"], row["manager_id"]) for row in rows if row["service"] == name)
        for name in NAMES
    }
    assert {name: (manager, epoch) for name, (epoch, manager) in last.items()} == said
    terms = {(row["service"], row["manager_id"], row["epoch"]) for row in rows}
    assert (NAMES[0], *before[NAMES[0]]) in terms  # Who managed it before is there, too.
