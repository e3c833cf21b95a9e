"""A server that answers what a test wants."""

from concurrent import futures

import grpc


class FakeServer:
    """Answers call n of Attend with what answer(n, context) returns, or ends it with."""

    def __init__(self, answer):
        self.calls = 0

        def attend(_, context):
            self.calls += 1
            return answer(self.calls, context)

        method = grpc.unary_unary_rpc_method_handler(attend)
        service = "attention.v1.AttentionService"
        handler = grpc.method_handlers_generic_handler(service, {"Attend": method})
        self._server = grpc.server(futures.ThreadPoolExecutor(1))
        self._server.add_generic_rpc_handlers([handler])
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()
