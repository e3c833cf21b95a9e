"""A source of requests, and a server, that wait: for tests of attend_many()."""

import asyncio
import gc
import threading

import grpc
import numpy as np
from failing_server import FailingServer

from attention_client import AsyncClient

ONES = np.ones((1, 2, 4), np.float32)
REQUEST = dict(query=ONES, key=ONES, value=ONES)
SOON = 60  # seconds, for what must happen at all


class Waiting:
    """A source that gives so many requests, and then waits without end."""

    def __init__(self, count):
        self._count = count
        self.is_waiting, self.is_ended = asyncio.Event(), asyncio.Event()

    async def requests(self):
        try:
            for _ in range(self._count):
                yield REQUEST
            self.is_waiting.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # as one does that closes something
            self.is_ended.set()


class Silent(FailingServer):
    """A server that gives no answer until it is told to fail."""

    def __init__(self):
        self.is_reached, self.is_free = threading.Event(), threading.Event()
        super().__init__(self._fail)

    def _fail(self, _, context):
        self.is_reached.set()
        assert self.is_free.wait(SOON)
        context.abort(grpc.StatusCode.INTERNAL, "told to fail")

    async def reached(self):
        assert await asyncio.to_thread(self.is_reached.wait, SOON)

    def __exit__(self, *_):
        self.is_free.set()
        super().__exit__()


def run(function, target):
    """Runs function(client), which leaves no task and no error that nobody has got."""

    async def main():
        said = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: said.append(context["message"]))
        async with AsyncClient(target) as client:
            await asyncio.wait_for(function(client), 2 * SOON)
            if left := asyncio.all_tasks() - {asyncio.current_task()}:
                # Some of gRPC's were cancelled a moment ago.
                _, left = await asyncio.wait(left, timeout=10)
            assert not left
        gc.collect()  # at the latest here, asyncio says what has gone unfinished
        assert not said

    asyncio.run(main())
