import pytest
from attacked_server import AttackedServer


@pytest.fixture
def start(tmp_path):
    """Starts a server with these flags; each must end well."""
    servers = []

    def start_server(*flags, **options):
        servers.append(AttackedServer(tmp_path, *flags, **options))
        return servers[-1]

    yield start_server
    for server in servers:
        code = server.stop()
        assert code == 0, server.log()
