"""What tests of the I/O thread share: a probe that is attached to the loop of their module."""

from collections.abc import Iterator

import pytest

from hubbub.runtime.loop import Loop
from tests.integration.probe import Probe


@pytest.fixture
def probe(loop: Loop) -> Iterator[Probe]:
    """An attachment of the loop."""
    probe = Probe()
    loop.attach(probe)
    yield probe
    loop.detach(probe)
    probe.close()
