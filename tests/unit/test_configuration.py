"""One precedence for every option: argument, environment, file, default."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import hubbub
from hubbub import Channel, ConfigurationError, Faults, ServiceOptions, Settings
from hubbub.cli.config import default_values, in_force
from hubbub.configuration import (
    OPTIONS,
    configurable,
    find_configured,
    unknown_variables,
    variable_of,
)


@configurable
def taken(name: str | None = None, **options: Any) -> dict[str, Any]:
    """Return what a node would be opened with."""
    return options if name is None else {"name": name, **options}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set variables; there are no others of ours."""
    import os

    for name in [name for name in os.environ if name.startswith("HUBBUB_")]:
        monkeypatch.delenv(name)

    def put(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put


def write(folder: Path, text: str) -> str:
    path = folder / "hubbub.toml"
    path.write_text(text)
    return str(path)


def test_every_option_of_open_can_be_configured_but_the_listener() -> None:
    signature = inspect.signature(hubbub.open).parameters
    options = {*signature, *(field.name for field in fields(Settings))} - {"options", "on_event"}
    assert set(OPTIONS) == options


def test_argument_wins_over_environment_over_file_over_default(
    environment: Callable[..., None], tmp_path: Path
) -> None:
    path = write(tmp_path, 'domain = "file"\nheartbeat_ms = 300\nlinger_ms = 7')
    environment(HUBBUB_CONFIG=path, HUBBUB_DOMAIN="variable", HUBBUB_HEARTBEAT_MS="200")
    assert taken(domain="argument") == {
        "domain": "argument", "heartbeat_ms": 200.0, "linger_ms": 7,
    }  # fmt: skip
    assert taken()["domain"] == "variable"
    shown = in_force()
    assert (shown["domain"].value, shown["domain"].origin) == ("variable", "HUBBUB_DOMAIN")
    assert (shown["linger_ms"].value, shown["linger_ms"].origin) == (7, path)
    assert (shown["slow_ms"].value, shown["slow_ms"].origin) == (200.0, "default")


def test_none_is_not_given_and_a_default_that_is_given_counts(
    environment: Callable[..., None],
) -> None:
    environment(HUBBUB_DOMAIN="plant", HUBBUB_LOOPBACK="off", HUBBUB_SWITCH_INTERVAL_MS="2")
    assert taken(None, domain=None, loopback=True, switch_interval_ms=None) == {
        "domain": "plant", "loopback": True, "switch_interval_ms": None,
    }  # fmt: skip
    assert taken("lidar")["name"] == "lidar"


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("services", "yes", True),
        ("services", "v1", "v1"),
        ("services", "placement=hrw, service_levels=2",
         ServiceOptions(placement="hrw", service_levels=2, is_open=False)),
        ("services", "yes,weight=3,membership=seed",
         ServiceOptions(weight=3, membership="seed", is_open=True)),
        ("services", "v1,placement=weighted", ServiceOptions(placement="weighted", version="v1")),
        ("services", "is_open=true", ServiceOptions()),
        ("offload", "FALSE", False),
        ("links", "local, tcp", ["local", "tcp"]),
        ("listen", "7300", 7300),
        ("listen", "10.0.0.7:7300", "10.0.0.7:7300"),
        ("channels", "239.1.2.3:7000,[ff15::7]:7001,239.1.2.4",
         [Channel("239.1.2.3", 7000), Channel("ff15::7", 7001), Channel("239.1.2.4")]),
        ("faults", "loss=0.1,seed=7,direction=in", Faults(loss=0.1, seed=7, direction="in")),
        ("switch_interval_ms", "none", None),
        ("cache_bytes", "1000", 1000),
        ("clock", "bus", "bus"),
    ],
)  # fmt: skip
def test_variable_is_read_as_what_the_option_is(option: str, text: str, value: Any) -> None:
    found = find_configured({variable_of(option): text})
    assert found[option].value == value and found[option].origin == variable_of(option)


def test_file_says_it_as_toml_does(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        'channels = ["239.1.2.3:7000"]\nlinks = ["tcp"]\nservices = true\npeers = "10.0.0.7"\n'
        "[faults]\nloss = 0.5\n",
    )
    found = {name: one.value for name, one in find_configured({"HUBBUB_CONFIG": path}).items()}
    assert found == {
        "channels": [Channel("239.1.2.3", 7000)], "links": ["tcp"], "services": True,
        "peers": ["10.0.0.7"], "faults": Faults(loss=0.5),
    }  # fmt: skip


def test_how_services_are_used_holds_wherever_it_is_not_said_anew(
    environment: Callable[..., None], tmp_path: Path
) -> None:
    path = write(tmp_path, '[services]\nplacement = "hrw"\nservice_levels = 2')
    environment(HUBBUB_CONFIG=path)
    configured = ServiceOptions(placement="hrw", service_levels=2, is_open=False)
    assert taken()["services"] == taken(services=False)["services"] == configured
    assert taken(services=True)["services"] == replace(configured, is_open=True)
    assert taken(services="v1")["services"] == replace(configured, is_open=True, version="v1")
    assert taken(services=ServiceOptions())["services"] == ServiceOptions()
    environment(HUBBUB_SERVICES="true")
    assert taken()["services"] == replace(configured, is_open=True)
    environment(HUBBUB_SERVICES="placement=xor")
    assert taken()["services"] == ServiceOptions(is_open=False)


def test_a_node_is_opened_with_what_is_configured(
    environment: Callable[..., None], tmp_path: Path
) -> None:
    path = write(tmp_path, 'interface = "127.0.0.1"\nlinks = ["multicast"]\nslow_ms = 123')
    environment(HUBBUB_CONFIG=path, HUBBUB_DOMAIN="configured", HUBBUB_NAME="lidar")
    with hubbub.open(heartbeat_ms=500) as node:
        assert (node.name, node.domain, node.links) == ("lidar", "configured", ("multicast",))
        assert (node.settings.slow_ms, node.settings.heartbeat_ms) == (123, 500)


def test_peers_of_all_nodes_are_left_out_where_they_are_of_no_use(
    environment: Callable[..., None],
) -> None:
    environment(HUBBUB_PEERS="10.0.0.7")
    assert taken()["peers"] == ["10.0.0.7"]
    assert "peers" not in taken(links=["multicast"])
    assert "peers" not in taken(network=False)
    assert taken(links="tcp")["peers"] == ["10.0.0.7"]
    assert taken(links=["multicast"], peers=["x"])["peers"] == ["x"]


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"HUBBUB_HEARTBEAT_MS": "fast"}, "HUBBUB_HEARTBEAT_MS='fast' is not a number"),
        ({"HUBBUB_CACHE_BYTES": "1.5"}, "HUBBUB_CACHE_BYTES='1.5' is not a whole number"),
        ({"HUBBUB_LOOPBACK": "perhaps"}, "HUBBUB_LOOPBACK='perhaps': write true or false"),
        ({"HUBBUB_FAULTS": "lost=1"}, "HUBBUB_FAULTS: lost is none of loss, "),
        ({"HUBBUB_SERVICES": "perhaps"}, "HUBBUB_SERVICES='perhaps': write true or false"),
        ({"HUBBUB_SERVICES": "colour=red"}, "HUBBUB_SERVICES: colour is none of membership, "),
        ({"HUBBUB_SERVICES": "weight=x"}, "HUBBUB_SERVICES weight='x' is not a whole number"),
        ({"HUBBUB_SERVICES": "placement=near"}, "placement='near': choose one of xor, hrw"),
        ({"HUBBUB_CONFIG": "/nowhere"}, "/nowhere cannot be read: No such file"),
    ],
)
def test_variable_that_cannot_be_read_is_named(variables: Mapping[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        find_configured(variables)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('domian = "x"', "there is no option domian; did you mean domain?"),
        ("qqq = 1", "there is no option qqq; `hubbub config show` lists"),
        ("domain = ", "is no TOML"),
        ('heartbeat_ms = "fast"', "heartbeat_ms='fast' is not a number"),
        ("[services]\nplacement = 5", "services: placement=5 is not of type str"),
    ],
)
def test_file_that_cannot_be_read_says_where(tmp_path: Path, content: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        find_configured({"HUBBUB_CONFIG": write(tmp_path, content)})
    assert text in str(raised.value) and "hubbub.toml" in str(raised.value)


def test_variables_that_nobody_reads_are_found() -> None:
    names = ["HUBBUB_DOMIAN", "HUBBUB_DOMAIN", "HUBBUB_CONFIG", "HUBBUB_RUNTIME_DIR", "HOME"]
    assert unknown_variables(dict.fromkeys(names, "x")) == ["HUBBUB_DOMIAN"]


def test_defaults_are_those_of_open() -> None:
    found = default_values()
    assert (found["loopback"], found["delivery_threads_max"]) == (True, 16)
    assert found["heartbeat_ms"] == Settings().heartbeat_ms
