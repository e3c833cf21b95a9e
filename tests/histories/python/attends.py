"""Requests that attend to sequences, and what their answers tell."""

import numpy as np
from attention.v1 import attention_pb2 as pb
from contents import VALUE_WIDTH, stored_of
from names import kind_of
from sequences import array_of, tensor

FIELDS = ("key", "value", "key_scale", "value_scale")  # of what is stored


def attend_request(random, entries, appended, shows):
    """Of (name, layer, position) and the keys that each brings, or none. `shows`: the
    answer shows the keys themselves, and not only an output."""
    lead = (len(entries), 1) if len(entries) > 1 else ((), (1, 1))[random.integers(2)]
    queries = kind_of(entries[0][0]).queries
    request = pb.AttendRequest(
        id="histories",
        query=tensor(np.broadcast_to(queries, (*lead, *queries.shape))),
        scaled_dot_product=pb.ScaledDotProduct(scale=1),
        return_lse=True,
    )
    for name, layer, position in entries:
        request.sequences.entries.add(name=name, layer=layer, position=position)
    if appended:
        rows = [stored_of(keys) for keys in appended]
        for field, of_entries in zip(FIELDS, zip(*rows)):
            array = np.stack(of_entries)
            shape = (*lead, *array.shape[1:])
            getattr(request.sequences.append, field).CopyFrom(
                tensor(array.reshape(shape))
            )
    if shows:
        request.scores = pb.SCORES_SCALED
    return request


def packed_request(entries, appended):
    """Likewise; each brings as many keys as there are queries."""
    count = len(entries)
    queries = kind_of(entries[0][0]).queries
    starts = np.arange(count + 1, dtype="<i4") * len(queries)
    request = pb.AttendRequest(
        id="packed",
        query=tensor(np.tile(queries, (count, 1))[:, None]),
        query_starts=pb.Tensor(
            datatype=pb.DATA_TYPE_INT32, shape=starts.shape, data=starts.tobytes()
        ),
        scaled_dot_product=pb.ScaledDotProduct(scale=1),
        return_lse=True,
    )
    for name, layer, position in entries:
        request.sequences.entries.add(name=name, layer=layer, position=position)
    if appended:
        rows = stored_of([one for keys in appended for one in keys])
        for field, array in zip(FIELDS, rows):
            getattr(request.sequences.append, field).CopyFrom(tensor(array[:, None]))
    return request


def attend_results(entries, shows):
    count, kind = len(entries), kind_of(entries[0][0])
    rows = len(kind.queries)

    def results(reply):
        outputs = array_of(reply.output).reshape(count, rows, VALUE_WIDTH)
        lengths = np.exp(array_of(reply.lse).reshape(count, rows)[:, -1])
        told = [
            {"output": output, "read": round(float(length))}
            for output, length in zip(outputs, lengths)
        ]
        # Of several that differ in length the server answers with one extent, of which
        # only the output tells where each begins.
        if shows and len(reply.scores.shape) > 1:
            scores = array_of(reply.scores)
            scores = scores.reshape(count, rows, scores.shape[-1])
            for result, one in zip(told, scores):
                # Behind a shorter entry's keys there is nothing.
                keys = np.where(np.isfinite(one), one, 0)[: kind.width].T
                there = np.flatnonzero(keys[:, 0])
                keys = keys[: there[-1] + 1 if len(there) else 0]
                result["seen"] = kind.ids_of(keys)
        return told

    return results


def calls_of(entries, appended):
    calls = []
    for n, (name, layer, position) in enumerate(entries):
        call = {"kind": "attend", "name": name, "layer": layer}
        if appended:
            call |= {"keys": appended[n], "position": position}
        calls.append(call)
    return calls
