"""A server of gRPC's own that answers, or fails, as a test wants."""

from concurrent import futures

import grpc

from attention_client import _messages


def refusal(number):
    """The reply to one request of a stream."""
    reply = _messages.message("attention.v1.AttendStreamResponse")
    made = reply(id=f"request {number}")
    made.error.message = f"the reply to {number}"
    return made.SerializeToString()


class FailingServer:
    """Answers call n of Attend with what answer(n, context) returns, or ends it with.

    Likewise AttendStream, with one reply to a whole stream.

    credentials: of gRPC, for a server with TLS. inference, keys: methods of
    GRPCInferenceService and KeyValueService by their names, each as answer is, without
    the count.
    """

    def __init__(self, answer, credentials=None, inference=None, keys=None):
        self.calls = 0

        def attend(_, context):
            self.calls += 1
            return answer(self.calls, context)

        def attend_stream(_, context):
            yield attend(_, context)

        methods = {
            "Attend": grpc.unary_unary_rpc_method_handler(attend),
            "AttendStream": grpc.stream_stream_rpc_method_handler(attend_stream),
        }
        service = "attention.v1.AttentionService"
        handlers = [grpc.method_handlers_generic_handler(service, methods)]
        for service, named in (
            ("inference.GRPCInferenceService", inference),
            ("attention.v1.KeyValueService", keys),
        ):
            methods = {
                name: grpc.unary_unary_rpc_method_handler(one)
                for name, one in (named or {}).items()
            }
            handlers.append(grpc.method_handlers_generic_handler(service, methods))
        self._server = grpc.server(futures.ThreadPoolExecutor(1))
        self._server.add_generic_rpc_handlers(handlers)
        if credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.target = f"127.0.0.1:{port}"
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()
