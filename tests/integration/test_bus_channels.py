"""Several multicast groups: apart from each other, coming and going, chosen by subject or name."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from hubbub import (
    Channel,
    Closed,
    ClosedError,
    ConfigurationError,
    HubbubError,
    Mail,
    PeerJoined,
    Vehicle,
)
from tests.integration.bus import (
    Events,
    Place,
    acting,
    fresh_place,
    hear,
    payloads,
    say,
    take,
    wait_until,
)
from tests.integration.namespace import ip, run_scenario


def two_channels() -> tuple[Place, Channel, Channel]:
    """Name two groups on one port."""
    place, other = fresh_place(), fresh_place()
    return place, Channel(place.group, place.port), Channel(other.group, place.port)


def hear_group(place: list[Any], group: str) -> None:
    """Receive on one group until told to report."""
    here = Place(*place)
    with here.open("listener", channels=[Channel(group, here.port)]) as node:
        subscription = node.subscribe("/...")
        say("ready")
        hear()
        say([message.payload.decode() for message in take(subscription, 1)])
        say(subscription.pending)
        hear()


def test_two_groups_on_one_port_do_not_mix_in_one_process() -> None:
    place, one, two = two_channels()
    with (
        place.open("p1", channels=[one]) as p1,
        place.open("p2", channels=[two]) as p2,
        place.open("s1", channels=[one]) as s1,
        place.open("s2", channels=[two]) as s2,
    ):
        subscriptions = [s1.subscribe("/..."), s2.subscribe("/...")]
        for publisher, text in ((p1.publisher("/x"), b"one"), (p2.publisher("/x"), b"two")):
            assert publisher.wait_for_subscribers(1, 10)
            assert publisher.publish(text) == 1
        assert [payloads(take(one, 1)) for one in subscriptions] == [[b"one"], [b"two"]]
        assert p1.flush(10) and p2.flush(10)
        assert [one.pending for one in subscriptions] == [0, 0]
        assert all(len(node.statistics().channels[0].peers) == 1 for node in (p1, p2, s1, s2))


def test_two_groups_on_one_port_do_not_mix_in_two_processes() -> None:
    place, one, two = two_channels()
    with (
        acting(hear_group, place, one.group) as first,
        acting(hear_group, place, two.group) as second,
        place.open("p", channels=[one, two]) as node,
    ):
        assert first.hear() == second.hear() == "ready"
        publishers = [node.publisher("/x", channel=channel) for channel in (one, two)]
        for publisher, text in zip(publishers, (b"one", b"two"), strict=True):
            assert publisher.wait_for_subscribers(1, 10)
            assert publisher.publish(text) == 1
        assert node.flush(10)
        for actor, heard in ((first, "one"), (second, "two")):
            actor.tell()
            assert actor.hear() == [heard]
            assert actor.hear() == 0


def test_channel_is_chosen_by_subject_by_name_and_by_object() -> None:
    place, video, rest = two_channels()
    video = Channel(video.group, video.port, "/video/...")
    with place.open("p", channels=[video, rest]) as node:
        assert node.publisher("/video/front").channel == video.name
        assert node.publisher("/temp").channel == rest.name
        assert node.publisher("/other", channel=video.name).channel == video.name
        assert node.publisher("/more", channel=node.channels[0]).channel == video.name
        only_video = node.subscribe("/...", channel=video)
        everywhere = node.subscribe("/...")
        node.publish("/video/front", b"v")
        node.publish("/temp", b"t")
        assert payloads(take(only_video, 1)) == [b"v"]
        assert sorted(payloads(take(everywhere, 2))) == [b"t", b"v"]
        assert only_video.pending == 0


def test_no_channel_for_a_subject_or_of_a_name_says_what_there_is() -> None:
    place, one, two = two_channels()
    video = Channel(one.group, one.port, "/video/...")
    with place.open("p", channels=[video]) as node:
        with pytest.raises(ConfigurationError, match=rf"no channel takes /temp.*{video.name} for"):
            node.publish("/temp", b"")
        with pytest.raises(ConfigurationError, match=f"not on channel {two.name}; it is on"):
            node.publisher("/x", channel=two)
        with pytest.raises(ConfigurationError, match=f"not on channel {two.name}"):
            node.subscribe("/x", channel=two.name)


def test_channel_comes_and_goes_at_run_time() -> None:
    place, one, two = two_channels()
    events, own = Events(), Events()
    with (
        place.open("far", channels=[two]) as far,
        place.open("n", channels=[one], on_event=events) as node,
    ):
        subscription = node.subscribe("/x")  # Hears channels that come later, too.
        connection = node.connect(two, on_event=own)
        assert [each.name for each in node.channels] == [one.name, two.name]
        publisher = far.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(b"over two")
        assert payloads(take(subscription, 1)) == [b"over two"]
        assert own.wait(PeerJoined).channel == two.name

        on_two = node.publisher("/y", channel=two)
        only_two = node.subscribe("/x", channel=two)
        reader = threading.Thread(target=lambda: heard.extend(only_two))
        heard: list[Any] = []
        reader.start()
        connection.close()
        connection.close()
        assert own.wait(Closed).channel == two.name
        assert [each.name for each in node.channels] == [one.name]
        wait_until(lambda: publisher.receivers == 0)
        with pytest.raises(ClosedError):
            on_two.publish(b"")
        with pytest.raises(ConfigurationError, match="not on channel"):
            node.publisher("/y", channel=two)
        reader.join(10)  # The iteration over what was only for this channel ends.
        assert not reader.is_alive() and only_two.is_closed

        node.publish("/x", b"over one")  # The others go on.
        assert payloads(take(subscription, 1)) == [b"over one"]
        node.connect(two)  # And it may come back.
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(b"again over two")
        assert payloads(take(subscription, 1)) == [b"again over two"]


def test_channel_is_left_at_the_end_of_a_with_block() -> None:
    place, one, two = two_channels()
    with place.open("n", channels=[one]) as node:
        with node.connect(two) as connection:
            assert node.channels[1] is connection
        assert [each.name for each in node.channels] == [one.name]


def test_patterns_come_and_go_while_another_thread_closes_a_channel() -> None:
    """They raised, and what had been added on the other channels could never be removed."""
    place, one, two = two_channels()
    with place.open("n", channels=[one, two]) as node:
        subscription = node.subscribe("/x")
        ending = node.channels[1]
        ending.driver.finish("closed")  # As far as another thread has got; the node comes next.
        handle = subscription.add("/y")
        node.publish("/y", b"heard")
        assert payloads(take(subscription, 1)) == [b"heard"]
        subscription.remove(handle)
        assert subscription.patterns == ("/x",)
        with pytest.raises(ClosedError, match=f"channel {two.name} is closed"):
            node.subscribe("/x", channel=two)
        ending.close()
        assert len(node.statistics().subscriptions) == 1


def test_channel_whose_listener_is_refused_is_not_joined() -> None:
    """It was among the channels of the node, and nothing came or went there."""
    place, one, two = two_channels()
    with place.open("n", channels=[one]) as node:
        with pytest.raises(ConfigurationError, match="on_event=5"):
            node.connect(two, on_event=5)  # type: ignore[arg-type]
        assert [each.name for each in node.channels] == [one.name]
        node.connect(two)


def test_shortcut_finds_another_channel_when_its_own_is_closed() -> None:
    place, one, two = two_channels()
    with place.open("n", channels=[one, two]) as node:
        subscription = node.subscribe("/x")
        node.publish("/x", b"one")
        node.channels[0].close()
        node.publish("/x", b"two")
        assert payloads(take(subscription, 2)) == [b"one", b"two"]


def test_same_group_and_port_twice_is_an_error() -> None:
    place = fresh_place()
    channel = Channel(place.group, place.port)
    with pytest.raises(ConfigurationError, match=f"{channel.name} already"):
        place.open("n", channels=[channel, channel])
    with place.open("n") as node:
        with pytest.raises(ConfigurationError, match=f"{channel.name} already"):
            node.connect(Channel(place.group, place.port, "/other/..."))
        assert len(node.channels) == 1


def test_group_is_the_same_however_it_is_written() -> None:
    assert Channel("FF02:0::7:1", 7266) == Channel("ff02::7:1", 7266)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("10.0.0.1", 7266), "10.0.0.1"),
        (("nonsense", 7266), "nonsense"),
        (("239.1.1.1", 0), "from 1 to 65535"),
        (("239.1.1.1", 65_536), "from 1 to 65535"),
        (("239.1.1.1", "7266"), "port='7266' is not a whole number"),
        (("239.1.1.1", 7266, "/...", None, 256), "256 must be from 0"),
        (("239.1.1.1", 7266, "/...", None, -1), "-1 must be from 0"),
        (("239.1.1.1", 7266, "nothing"), "nothing"),
        (("239.1.1.1", 7266, "/...", 5), "interface=5: give a name or an address"),
        (("239.1.1.1", 7266, "/...", None, 1, {}), "settings={}: give hubbub.Settings"),
    ],
)
def test_channel_that_cannot_work_is_refused(arguments: Any, text: str) -> None:
    with pytest.raises(HubbubError, match=text):
        Channel(*arguments)


# Interfaces.


@pytest.mark.parametrize("interface", ["lo", "127.0.0.1"])
def test_interface_by_name_and_by_address(interface: str) -> None:
    place = fresh_place()
    with place.open("p", interface=interface) as sender, place.open("s") as receiver:
        assert sender.statistics().channels[0].link.interfaces == ("lo",)
        subscription = receiver.subscribe("/x")
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(b"x")
        assert payloads(take(subscription, 1)) == [b"x"]


def test_channel_may_have_an_interface_of_its_own() -> None:
    place = fresh_place()
    channel = Channel(place.group, place.port, interface="lo")
    with place.open("p", interface="no-such", channels=[channel]) as node:
        assert node.statistics().channels[0].link.interfaces == ("lo",)


@pytest.mark.parametrize("interface", ["no-such0", "192.0.2.77"])
def test_unknown_interface_is_an_error_that_lists_what_there_is(interface: str) -> None:
    with pytest.raises(HubbubError, match=rf"{interface}.*lo.*127\.0\.0\.1") as caught:
        fresh_place().open("n", interface=interface)
    assert "\n" not in str(caught.value)


def talk_over_ipv6() -> None:
    # Linux routes no IPv6 multicast on loopback unless told to.
    ip("-6 route add local ff00::/8 dev lo table local")
    place = fresh_place()
    channel = Channel(f"ff02::72:{place.port:x}", place.port)
    options: dict[str, Any] = {"channels": [channel], "interface": "::1"}
    with place.open("p", **options) as sender, place.open("s", **options) as receiver:
        assert sender.channels[0].name == channel.name == receiver.channels[0].name
        subscription = receiver.subscribe("/x")
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(bytes(300_000))
        assert payloads(take(subscription, 1)) == [bytes(300_000)]
        sender.channels[0].close()
        assert sender.channels == ()


@pytest.mark.netns
def test_ipv6_group_on_loopback() -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    run_scenario(talk_over_ipv6)


def talk_on_all_interfaces() -> None:
    for name, address in (("lan0", "192.0.2.1/24"), ("lan1", "198.51.100.1/24")):
        ip(f"link add {name} type veth peer name {name}-end")
        ip(f"link set {name}-end up")
        ip(f"link set {name} up")
        ip(f"address add {address} dev {name}")
    place = fresh_place()
    with (
        place.open("all", interface="all") as everywhere,
        place.open("zero", interface="lan0") as zero,
        place.open("one", interface="198.51.100.1") as one,
    ):
        assert set(everywhere.statistics().channels[0].link.interfaces) >= {"lan0", "lan1"}
        subscriptions = [zero.subscribe("/x"), one.subscribe("/x")]
        publisher = everywhere.publisher("/x")
        assert publisher.wait_for_subscribers(2, 10)
        assert publisher.publish(b"to both") == 2
        assert [payloads(take(each, 1)) for each in subscriptions] == [[b"to both"]] * 2


@pytest.mark.netns
def test_node_on_all_interfaces_reaches_each_of_them() -> None:
    run_scenario(talk_on_all_interfaces)


def test_node_on_no_channel_says_so_of_what_needs_one() -> None:
    with fresh_place().open("n", channels=[]) as node:
        for ask in (
            lambda: node.service("news"),
            lambda: node.observe(),
            lambda: node.schedule(),
            lambda: Mail(node, 9, None),
        ):
            with pytest.raises(ConfigurationError, match="no channel: connect"):
                ask()
        assert node.statistics().channels == ()
    with pytest.raises(ConfigurationError, match="no channel: connect"):
        Vehicle("car", channels=[])
