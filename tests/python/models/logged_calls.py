"""What a server has logged of the calls that it answered."""

import numpy as np
import pytest
from polling import wait_until

from attention_client import InvalidArgumentError


def calls_until_now(server, client):
    """How many it has answered with OK; it logs them at level debug.

    Its log is written behind its answers. One more call, which it refuses, marks the
    end.
    """

    def refused():
        return server.log().count("status=INVALID_ARGUMENT")

    before = refused()
    narrow, wide = (np.ones((1, 1, width), np.float32) for width in (2, 3))
    with pytest.raises(InvalidArgumentError):
        client.attend(narrow, wide, wide)
    wait_until(lambda: refused() == before + 1, "the refused call's line")
    return server.log().count("status=OK")
