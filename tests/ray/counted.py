"""Servers whose calls are counted."""

import many_servers

from attention_client import Client, _channel


class _Counting(Client):
    """It keeps the methods that it has called."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.called = []

    def _call(self, method, *arguments):
        self.called.append(method)
        return super()._call(method, *arguments)

    def _start(self, method, *arguments):
        self.called.append(method)
        return super()._start(method, *arguments)


class Servers(many_servers.Servers):
    client = _Counting

    def forget(self):
        for client in self.clients:
            client.called.clear()

    def trees(self):
        """Clients that have asked for others' shards."""
        return sum(_channel.ATTEND_SHARDS in client.called for client in self.clients)

    def asked(self):
        """Clients that have asked for anything."""
        return sum(bool(client.called) for client in self.clients)
