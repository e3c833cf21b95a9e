import pytest
from attacked_server import AttackedServer


@pytest.fixture
def start(tmp_path):
    """Starts a server with these flags; each must end well, or as expected."""
    servers = []

    def start_server(*flags, expect=0, **options):
        server = AttackedServer(tmp_path, *flags, **options)
        servers.append((server, expect))
        return server

    yield start_server
    for server, expect in servers:
        code = server.stop()
        assert code == expect, server.log()
