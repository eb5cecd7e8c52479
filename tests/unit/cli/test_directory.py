"""What nodes declare, by subject; and as it is shown, whatever they call themselves."""

from hubbub.awareness import RemotePeer, RemotePublisher
from hubbub.cli.directory import list_topics
from hubbub.cli.graph import _draw, _fields, _grow
from hubbub.cli.ls import _lay_out
from hubbub.message import Source


def make(name: str, *published: str, wants: tuple[str, ...] = (), schema: str = "") -> RemotePeer:
    source = Source(name, name.encode().ljust(12, b"\x00")[:12], 1)
    place = {"node": source, "host": "h", "pid": 1, "link": "local", "channel": "c"}
    publications = tuple(
        RemotePublisher(
            **place, subject=subject, schema=schema, is_reliable=True, since_ns=0,  # type: ignore[arg-type]
            heard_ms_ago=0, sequence=3,
        )
        for subject in published
    )  # fmt: skip
    return RemotePeer(
        **place, since_ns=0, heard_ms_ago=0, patterns=wants, publications=publications  # type: ignore[arg-type]
    )  # fmt: skip


NODES = (
    make("sub", wants=("/a/*", "/a/1", "/only")),
    make("pub", "/a/2", "/a/1", schema="T"),
    make("both", "/a/1", "/b", wants=("/b",)),
)


def ends(pattern: str = "/...") -> dict[str, tuple[list[str], list[str]]]:
    return {
        topic.subject: (
            [one.node.name for one in topic.publishers],
            [one.node.node.name for one in topic.subscribers],
        )
        for topic in list_topics(NODES, pattern)
    }


def test_topics_have_everybody_at_both_ends_by_subject_and_name() -> None:
    assert ends() == {
        "/a/1": (["both", "pub"], ["sub"]),
        "/a/2": (["pub"], ["sub"]),
        "/b": (["both"], ["both"]),
        "/only": ([], ["sub"]),
    }
    assert list(ends()) == sorted(ends())


def test_subscriber_is_there_once_with_all_patterns_that_match() -> None:
    [topic] = list_topics(NODES, "/a/1")
    assert [one.patterns for one in topic.subscribers] == [("/a/*", "/a/1")]
    assert topic.types == ["", "T"]


def test_pattern_chooses_and_a_subject_is_found_by_wildcards_of_others() -> None:
    assert [*ends("/a/*")] == ["/a/1", "/a/2"]
    assert ends("/a/new") == {"/a/new": ([], ["sub"])}
    assert ends("/nobody/wants/it") == {}


def test_table_counts_nodes_or_names_them() -> None:
    topics = list_topics(NODES, "/a/*")
    _, rows = _lay_out(topics, None, is_verbose=False)
    assert rows == [("/a/1", "-, T", "2", "1"), ("/a/2", "T", "1", "1")]
    _, rows = _lay_out(topics, {"/a/1": 9.96}, is_verbose=True)
    assert rows[0] == ("/a/1", "-, T", "both#626f74, pub#707562", "sub#737562", "10.0")
    assert rows[1][-1] == "0.0"


def test_tree_shows_publishers_and_what_nobody_publishes() -> None:
    assert _grow(list_topics(NODES)) == [
        "both#626f74",
        "  /a/1 -> sub#737562",
        "  /b -> both#626f74",
        "pub#707562",
        "  /a/1 -> sub#737562",
        "  /a/2 -> sub#737562",
        "(nobody publishes)",
        "  /only -> sub#737562",
    ]


def test_names_cannot_break_out_of_a_drawing() -> None:
    evil = make('x"; y [label="\x1b[2J', '/a"b\\c')
    lines = _draw(list_topics([evil]))
    assert all(line.isprintable() for line in lines)
    assert lines[2].endswith('label="x\\"; y [label=\\"\\\\x1b[2J#78223b"];')
    assert lines[3].endswith('-> "/a\\"b\\\\c";')


def test_every_pair_that_talks_is_an_edge() -> None:
    found = _fields(list_topics(NODES))
    names = {node["id"]: node["name"] for node in found["nodes"]} | {None: None}
    edges = {(names[one["from"]], one["subject"], names[one["to"]]) for one in found["edges"]}
    assert edges == {
        ("both", "/a/1", "sub"), ("pub", "/a/1", "sub"), ("pub", "/a/2", "sub"),
        ("both", "/b", "both"), (None, "/only", "sub"),
    }  # fmt: skip
