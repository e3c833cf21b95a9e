"""A server that goes away and comes back."""

import socket
import threading
import time

import pytest

from attention_client import Client, UnavailableError


@pytest.fixture
def doorway():
    """Says where it listens, and counts who comes; it hangs up on all of them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        came = []

        def hang_up():
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                came.append(time.monotonic())
                caller.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", came
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_client_goes_on_knocking_at_a_server_that_is_away(doorway):
    # Left to itself, gRPC comes the ninth time after some 70 s; here it is 4 s.
    target, came = doorway
    end = time.monotonic() + 45
    with Client(target) as client:
        while len(came) < 9 and time.monotonic() < end:
            with pytest.raises(UnavailableError):
                client.health(timeout=60)
    assert len(came) >= 9
