"""Sides of a gateway as people write them: what is wrong is said before anything is opened."""

from pathlib import Path

import pytest

from hubbub.errors import ConfigurationError, SubjectError
from hubbub.gateway.config import read_config
from hubbub.gateway.reading import read_side
from hubbub.gateway.side import Side, check_sides

TEXT = """
name = "gw-1"

[[side]]
name = "office"
interface = "eth0"

[[side]]
name = "plant"
peers = ["10.0.0.7:7300", "10.0.0.8:7300"]
port = 7400
rate_limit_bits = 8_000_000
remap = {"/plant" = "/site1/plant"}
"""


def test_side_of_the_command_line() -> None:
    assert read_side("name=a,interface=eth0,port=7300") == Side("a", interface="eth0", port=7300)
    assert read_side("peers=10.0.0.7:7300+10.0.0.8") == Side(
        "peers=10.0.0.7:7300+10.0.0.8", peers=("10.0.0.7:7300", "10.0.0.8")
    )


def test_side_with_a_limit_and_other_names() -> None:
    side = read_side(
        "name=a,rate_limit_bits=8000,urgent=/alarm/...,remap=/plant:/site1/plant+/a:/b"
    )
    assert (side.rate_limit_bits, side.urgent) == (8000, ("/alarm/...",))
    assert side.remap == {"/plant": "/site1/plant", "/a": "/b"}


def test_side_that_lets_only_some_subjects_cross() -> None:
    side = read_side("name=a,only=/plant/...+/video/*")
    assert side.only == ("/plant/...", "/video/*")
    with pytest.raises(SubjectError):
        read_side("name=a,only=plant")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("eth0", "'eth0' is not OPTION=VALUE"),
        ("interface=", "'interface=' is not OPTION=VALUE"),
        ("colour=red", "colour is none of name, domain"),
        ("domain=a,domain=b", "domain is there twice"),
        ("port=0", "port='0' must be from 1 to 65535"),
        ("rate_limit_bits=1.5", "rate_limit_bits='1.5' must be from 1 to"),
        ("remap=/a", "'/a' is not /HERE:/ELSEWHERE"),
        ("remap=/a:/x+/b:/x/y", "remap: /x and /x/y collide"),
        ("port=x", "port='x' must be from 1 to 65535"),
        ("allow=10.0.0.0/8", "allow is of sites: add listen or peers"),
        ("listen=7300,allow=plant-a", "'plant-a' is a name, which only a certificate can prove"),
        ("compress=zlib", "compress is of sites: add listen or peers"),
        ("listen=7300,compress=lzma", "compress='lzma' is none of zlib, zstd"),
        ("listen=7300,ca=ca.pem", "certificate is missing"),
        ("peers=a++b", r"peers=\['a', '', 'b'\] is not a list of texts"),
    ],
)
def test_side_that_is_none_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        read_side(text)


def test_sides_that_are_one_network_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="a and b are the same network"):
        check_sides([Side("a", interface="eth0"), Side("b", interface="eth0")])
    with pytest.raises(ConfigurationError, match="two sides are named 'a'"):
        check_sides([Side("a", interface="eth0"), Side("a", interface="eth1")])
    with pytest.raises(ConfigurationError, match="at least 2 sides, not 1"):
        check_sides([Side("a")])
    assert len(check_sides([Side("a", interface="eth0"), Side("b", listen="7300")])) == 2


def test_config_file(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(TEXT)
    config = read_config(path)
    assert config.name == "gw-1"
    assert config.sides == (
        Side("office", interface="eth0"),
        Side(
            "plant", port=7400, peers=("10.0.0.7:7300", "10.0.0.8:7300"),
            rate_limit_bits=8_000_000, remap={"/plant": "/site1/plant"},
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("name = [", "is no TOML"),
        ("colour = 1", "colour is neither name nor side"),
        ("name = 1", "name=1 is not a text"),
        ("side = 1", r"side must be tables: write \[\[side\]\]"),
        ("[[side]]\ninterface = 1\n[[side]]", "side 'side 1': interface=1 is not a text"),
        ("[[side]]\n[[side]]", "side 1 and side 2 are the same network"),
        ("[[side]]\nremap = 1\n[[side]]", "remap=1 is not a table of subjects"),
        ('[[side]]\npeers = "10.0.0.7"\n[[side]]', "is not a list of texts"),
    ],
)
def test_config_that_cannot_work_is_refused_with_its_file(
    tmp_path: Path, text: str, fault: str
) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=fault) as error:
        read_config(path)
    assert str(path) in str(error.value)


def test_config_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_config(tmp_path / "none.toml")
