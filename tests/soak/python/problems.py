"""Random problems, as requests of both APIs, and what their answers must be."""

import json

import contract
import numpy as np
from attention.v1 import attention_pb2 as pb
from inference import grpc_service_pb2 as oip

TYPES = {
    "FP32": (pb.DATA_TYPE_FP32, np.dtype("<f4")),
    "FP16": (pb.DATA_TYPE_FP16, np.dtype("<f2")),
    "BF16": (pb.DATA_TYPE_BF16, None),
    "INT32": (pb.DATA_TYPE_INT32, np.dtype("<i4")),
    "BOOL": (pb.DATA_TYPE_BOOL, np.dtype("?")),
}
MODELS = {
    name: f"{name}_attention"
    for name in ("scaled_dot_product", "additive", "gaussian", "bilinear")
}
CAUSAL = {
    "none": pb.CAUSAL_NONE,
    "top_left": pb.CAUSAL_TOP_LEFT,
    "bottom_right": pb.CAUSAL_BOTTOM_RIGHT,
}
EMPTY_ROWS = {"zero": pb.EMPTY_ROWS_ZERO, "uniform": pb.EMPTY_ROWS_UNIFORM}


def to_bytes(array, datatype):
    if datatype == "BF16":  # the upper half of an FP32
        return (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return np.ascontiguousarray(array, TYPES[datatype][1]).tobytes()


def from_bytes(data, datatype):
    if datatype == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, TYPES[datatype][1])


class SoakProblem:
    """Shapes, datatype and options by chance; small, and one in twenty larger.

    All of it follows from a seed.
    """

    def __init__(self, seed):
        self.seed = seed
        self._random = random = np.random.default_rng(seed)
        self.datatype = str(random.choice(["FP32", "FP32", "FP16", "BF16"]))
        large = random.random() < 0.05
        batch, heads = random.integers(1, 4), random.integers(1, 3)
        group, width, value_width = (
            random.choice([1, 2]),
            *random.choice([1, 5, 8, 16, 64], 2),
        )
        queries = random.integers(128, 257) if large else random.integers(1, 49)
        keys = random.integers(1000, 2001) if large else random.integers(1, 129)
        scoring = "scaled_dot_product" if large else str(random.choice(list(MODELS)))
        self.attention = contract.Attention(
            self._numbers(batch, heads * group, queries, width),
            self._numbers(batch, heads, keys, width),
            self._numbers(batch, heads, keys, value_width),
            scoring,
            self._parameters(scoring, width),
            self._masks(batch, heads * group, queries, keys),
            self._options(),
        )
        self.weights, self.lse = (random.random(2) < 0.3).tolist()

    def _numbers(self, *shape):
        """Numbers that the datatype holds exactly."""
        numbers = self._random.normal(size=shape).astype(np.float32)
        text = to_bytes(numbers, self.datatype)
        return from_bytes(text, self.datatype).astype(np.float32).reshape(shape)

    def _parameters(self, scoring, width):
        if scoring == "additive":
            shapes = {"w_q": (width, 4), "w_k": (width, 4), "w_v": (4,)}
        else:
            shapes = {"m": (width, width)} if scoring == "bilinear" else {}
        return {name: self._numbers(*shape) for name, shape in shapes.items()}

    def _masks(self, batch, heads, queries, keys):
        random = self._random
        masks = {}
        if random.random() < 0.3:
            masks["valid_lens"] = random.integers(0, keys + 1, batch)
        if random.random() < 0.3:
            masks["attend_mask"] = random.random((queries, keys)) < 0.8
        if random.random() < 0.3:
            masks["bias"] = random.normal(size=(heads, 1, keys)).astype(np.float32)
        if random.random() < 0.2:
            masks["sinks"] = random.normal(size=heads).astype(np.float32)
        return masks

    def _options(self):
        random = self._random
        options = {}
        if random.random() < 0.4:
            options["causal"] = str(random.choice(list(CAUSAL)))
        if random.random() < 0.2:
            options["window_left"] = int(random.integers(0, 100))
        if random.random() < 0.2:
            options["softcap"] = float(random.choice([1, 5, 30]))
        if random.random() < 0.2:
            options["empty_rows"] = str(random.choice(list(EMPTY_ROWS)))
        return options

    def tensors(self):
        """Name to (array, datatype)."""
        attention, own = self.attention, self.datatype
        tensors = {name: (getattr(attention, name), own) for name in QKV}
        tensors |= {name: (array, own) for name, array in attention.parameters.items()}
        types = {"valid_lens": "INT32", "attend_mask": "BOOL"}
        for name, array in attention.masks.items():
            tensors[name] = (array, types.get(name, "FP32"))
        return tensors

    def attend_request(self, name=""):
        tensors = {
            key: pb.Tensor(
                datatype=TYPES[datatype][0],
                shape=array.shape,
                data=to_bytes(array, datatype),
            )
            for key, (array, datatype) in self.tensors().items()
        }
        options = dict(self.attention.options)
        if "causal" in options:
            options["causal"] = CAUSAL[options["causal"]]
        if "empty_rows" in options:
            options["empty_rows"] = EMPTY_ROWS[options["empty_rows"]]
        return pb.AttendRequest(
            id=name,
            query=tensors["query"],
            key_value=pb.KeyValueTensors(key=tensors["key"], value=tensors["value"]),
            return_weights=self.weights,
            return_lse=self.lse,
            **{key: tensors[key] for key in self.attention.masks},
            **self._scoring_message(tensors),
            **options,
        )

    def _scoring_message(self, tensors):
        messages = {
            "scaled_dot_product": pb.ScaledDotProduct,
            "additive": pb.Additive,
            "gaussian": pb.Gaussian,
            "bilinear": pb.Bilinear,
        }
        parameters = {name: tensors[name] for name in self.attention.parameters}
        scoring = self.attention.scoring
        return {scoring: messages[scoring](**parameters)}

    def infer_request(self, name=""):
        tensors = self.tensors()
        request = oip.ModelInferRequest(
            id=name,
            model_name=MODELS[self.attention.scoring],
            raw_input_contents=[to_bytes(*tensor) for tensor in tensors.values()],
        )
        for key, (array, datatype) in tensors.items():
            request.inputs.add(name=key, datatype=datatype, shape=array.shape)
        for wanted in ("output", *self._extra_outputs()):
            request.outputs.add(name=wanted)
        for key, value in self.attention.options.items():
            kind = {str: "string_param", int: "int64_param", float: "double_param"}
            setattr(request.parameters[key], kind[type(value)], value)
        return request

    def http_infer_request(self):
        """The body over HTTP, and how much of it is JSON: tensors follow as bytes."""
        request = self.infer_request()
        raw = request.raw_input_contents
        head = {
            "inputs": [
                {
                    "name": tensor.name,
                    "datatype": tensor.datatype,
                    "shape": list(tensor.shape),
                    "parameters": {"binary_data_size": len(data)},
                }
                for tensor, data in zip(request.inputs, raw, strict=True)
            ],
            "outputs": [
                {"name": output.name, "parameters": {"binary_data": True}}
                for output in request.outputs
            ],
            "parameters": self.attention.options,
        }
        text = json.dumps(head).encode()
        return text + b"".join(raw), len(text)

    def infer_request_in_region(self, region):
        """One whose tensors all lie in a region, its inputs' bytes, and its size."""
        request = self.infer_request()
        data = b"".join(request.raw_input_contents)
        sizes = [len(raw) for raw in request.raw_input_contents]
        sizes += [self._bytes_of(output.name) for output in request.outputs]
        del request.raw_input_contents[:]
        offset = 0
        for tensor, size in zip(
            [*request.inputs, *request.outputs], sizes, strict=True
        ):
            tensor.parameters["shared_memory_region"].string_param = region
            tensor.parameters["shared_memory_offset"].int64_param = offset
            tensor.parameters["shared_memory_byte_size"].int64_param = size
            offset += size
        return request, data, offset

    def _bytes_of(self, name):
        """Of a result."""
        *rows, _ = self.attention.query.shape
        extents = {
            "output": self.attention.value.shape[3:],
            "weights": self.attention.key.shape[2:3],
            "lse": (),
        }
        size = 2 if name == "output" and self.datatype != "FP32" else 4
        return size * int(np.prod([*rows, *extents[name]]))

    def _extra_outputs(self):
        return [name for name in ("weights", "lse") if getattr(self, name)]

    def farthest_of_attend(self, reply):
        tensors = {"output": reply.output, "weights": reply.weights, "lse": reply.lse}
        wanted = ("output", *self._extra_outputs())
        return self._farthest({name: tensors[name].data for name in wanted})

    def farthest_of_infer(self, reply):
        names = [output.name for output in reply.outputs]
        return self._farthest(dict(zip(names, reply.raw_output_contents, strict=True)))

    def farthest_of_http(self, body, json_size):
        results, offset = {}, json_size
        for output in json.loads(body[:json_size])["outputs"]:
            size = output["parameters"]["binary_data_size"]
            results[output["name"]] = body[offset : offset + size]
            offset += size
        return self._farthest(results)

    def farthest_of_region(self, data):
        """The bytes behind the inputs'."""
        results, offset = {}, 0
        for name in ("output", *self._extra_outputs()):
            results[name] = data[offset : offset + self._bytes_of(name)]
            offset += self._bytes_of(name)
        return self._farthest(results)

    def _farthest(self, results):
        """In tolerances, of all results that were asked for; infinite for others."""
        if set(results) != {"output", *self._extra_outputs()}:
            return np.inf
        answer = contract.solve(self.attention, self.datatype)
        worst = 0.0
        for name, data in results.items():
            expected = getattr(answer, name)
            actual = from_bytes(data, self.datatype if name == "output" else "FP32")
            if actual.size != expected.size:
                return np.inf
            tolerance = getattr(answer, f"{name}_tolerance")
            actual = actual.astype(np.float64).reshape(expected.shape)
            worst = max(worst, contract.farthest(actual, expected, tolerance))
        return worst


QKV = ("query", "key", "value")
