"""all-MiniLM-L6-v2 by onnxruntime: the tokens of one text in, the mean of its last layer out.

A text is computed alone, on one core, so its vector does not depend on what else is embedded. The graph is written here
from the weights of the released file; nothing is downloaded, and neither torch nor transformers is needed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

MARKS = 2  # tokens that a model puts around a text
LONGEST = 256  # tokens of a text that MiniLM reads, as in its release
LAYERS, HEADS, EPSILON = 6, 12, 1e-12
OPSET, IR_VERSION = 18, 9  # of ONNX


class MiniLM:
    """The model.

    folder   with the released files: model.safetensors (float32) and tokenizer.json
    """

    def __init__(self, folder: Path) -> None:
        import onnxruntime
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        graph, self._weights = _graph(load_file(folder / "model.safetensors"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in self._weights.values()]
        options.add_external_initializers(list(self._weights), values)
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def count(self, text: str) -> int:
        """Number of its tokens."""
        return len(self._tokenizer.encode(text).ids)

    def windows(self, text: str) -> list[str]:
        """The text, or its consecutive parts if it has more than LONGEST tokens."""
        if len(text) <= LONGEST - MARKS:
            return [text]
        read = self._tokenizer.encode(text, add_special_tokens=False)
        return windows(text, read.offsets, read.word_ids, LONGEST - MARKS)

    def encode(self, text: str) -> Any:
        """float32 (384,), of any length."""
        import numpy as np

        ids = self._tokenizer.encode(text).ids
        ids = ids if len(ids) <= LONGEST else [*ids[: LONGEST - 1], ids[-1]]
        return self._session.run(None, {"ids": np.array(ids), "places": np.arange(len(ids))})[0]


class _Graph:
    """Collects the nodes of an ONNX graph, its constants, and its weights by name: these stay outside of the model."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.weights: dict[str, Any] = {}

    def __getattr__(self, kind: str) -> Any:
        """A method that adds a node of this kind, e.g. Add, and returns the name of what it computes."""
        return partial(self._add, kind)

    def _add(self, kind: str, *given: Any, **attributes: Any) -> str:
        from onnx import helper

        made = f"{kind}_{len(self.nodes)}"
        names = [each if isinstance(each, str) else self._array(f"{made}_{n}", each) for n, each in enumerate(given)]
        self.nodes.append(helper.make_node(kind, names, [made], **attributes))
        return made

    def _array(self, name: str, array: Any) -> str:
        import numpy as np
        from onnx import TensorProto, helper, numpy_helper

        if array.dtype == np.float32 and array.ndim:
            self.weights[name] = np.ascontiguousarray(array)
            where = {"data_location": TensorProto.EXTERNAL, "external_data": [{"key": "location", "value": name}]}
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            self.constants.append(TensorProto(name=name, data_type=kind, dims=array.shape, **where))
        else:  # a shape, or a number
            self.constants.append(numpy_helper.from_array(array, name))
        return name


def _graph(weights: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """(an ONNX model from "ids" and "places", int64 (n,), to float32 (384,); its weights by name, which it lacks).

    weights   by the names of the released file
    """
    import numpy as np
    from onnx import TensorProto, helper

    g = _Graph()
    split, whole, axis = np.array([0, HEADS, -1]), np.array([0, -1]), np.array([0])
    half, root, one = (np.array(value, np.float32) for value in (0.5, 0.5**0.5, 1))

    def linear(x: str, name: str) -> str:
        return g.Add(g.MatMul(x, weights[f"{name}.weight"].T), weights[f"{name}.bias"])

    def norm(x: str, name: str) -> str:
        affine = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return g.LayerNormalization(x, *affine, axis=-1, epsilon=EPSILON)

    def heads(x: str, name: str, order: list[int]) -> str:
        return g.Transpose(g.Reshape(linear(x, name), split), perm=order)

    def attention(x: str, at: str) -> str:
        query, value = (heads(x, f"{at}.{name}", [1, 0, 2]) for name in ("query", "value"))
        scores = g.MatMul(query, heads(x, f"{at}.key", [1, 2, 0]))
        scale = np.array((weights[f"{at}.key.bias"].size / HEADS) ** -0.5, np.float32)
        read = g.MatMul(g.Softmax(g.Mul(scores, scale), axis=-1), value)
        return g.Reshape(g.Transpose(read, perm=[1, 0, 2]), whole)

    def gelu(x: str) -> str:
        return g.Mul(g.Mul(x, half), g.Add(g.Erf(g.Mul(x, root)), one))

    kind = weights["embeddings.token_type_embeddings.weight"][0]  # all tokens are of the first type
    places = g.Gather(weights["embeddings.position_embeddings.weight"] + kind, "places")
    x = norm(g.Add(g.Gather(weights["embeddings.word_embeddings.weight"], "ids"), places), "embeddings.LayerNorm")
    for number in range(LAYERS):
        at = f"encoder.layer.{number}"
        read = linear(attention(x, f"{at}.attention.self"), f"{at}.attention.output.dense")
        x = norm(g.Add(x, read), f"{at}.attention.output.LayerNorm")
        inner = gelu(linear(x, f"{at}.intermediate.dense"))
        x = norm(g.Add(x, linear(inner, f"{at}.output.dense")), f"{at}.output.LayerNorm")
    mean = g.ReduceMean(x, axis, keepdims=0)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in ("ids", "places")]
    output = helper.make_tensor_value_info(mean, TensorProto.FLOAT, [len(kind)])
    graph = helper.make_graph(g.nodes, "MiniLM", inputs, [output], g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return model.SerializeToString(), g.weights


def windows(text: str, offsets: list[tuple[int, int]], words: list[int | None], most: int) -> list[str]:
    """The consecutive parts of a text, each of at most `most` tokens; no word is divided.

    offsets, words   of each token: its place in the text, and the number of its word
    """
    parts, start = [], 0
    while start < len(offsets):
        end = min(start + most, len(offsets))
        while start < end < len(offsets) and words[end] is not None and words[end] == words[end - 1]:
            end -= 1
        end = end if end > start else min(start + most, len(offsets))  # a single word of so many tokens
        parts.append(text[offsets[start][0] : offsets[end - 1][1]])
        start = end
    return parts or [text]
