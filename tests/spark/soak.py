"""What takes Spark a minute or more: run by `make soak` alone, and said so where it is skipped."""

import pytest

from tests.integration.bus import IS_SOAK


def only_in_soak(test: object) -> object:
    """Mark a test that is too long for `make test`."""
    skip = pytest.mark.skipif(not IS_SOAK, reason="takes Spark minutes: HUBBUB_SOAK=1 runs it")
    return pytest.mark.soak(skip(test))
