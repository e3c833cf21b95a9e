"""Answers where all keys are lost are those of a server whose rows see none."""

import numpy as np
import pytest

from attention_client import InvalidArgumentError
from attention_client.info import SequenceForm
from attention_client.ray.fanout import Question

FORM = SequenceForm(2, 16, 8, "float32", 1)


def answer(shape, dtype=np.float32):
    return Question.of(np.ones((1, *shape), dtype), 0, {}).without_keys(FORM)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_the_output_has_a_servers_datatype(dtype):
    output = answer((4, 3, 16), dtype).output
    assert (output.dtype, output.shape) == (np.float32, (1, 4, 3, 8))


@pytest.mark.parametrize("shape", [(3, 2, 16), (0, 2, 16), (4, 2, 15)])
def test_a_query_that_a_server_refuses_is_refused(shape):
    with pytest.raises(InvalidArgumentError):
        answer(shape)
