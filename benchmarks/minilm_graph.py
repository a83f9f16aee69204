"""Writes minilm.onnx, the graph of all-MiniLM-L6-v2 without its weights: python -m benchmarks.minilm_graph

The graph names the tensors of the released file, which minilm.py hands to onnxruntime as they are. Writing it needs
onnx (the extra dev); running it does not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from core.models.minilm import GRAPH

LAYERS, HEADS, SIZE, INNER, EPSILON = 6, 12, 384, 1536, 1e-12
WORDS, PLACES = 30522, 512  # rows of the two tables of embeddings
OPSET, IR_VERSION = 18, 9  # of ONNX


class _Graph:
    """Collects the nodes of an ONNX graph, its constants, and the weights that it names and lacks."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def __getattr__(self, kind: str) -> Any:
        """A method that adds a node of this kind, e.g. Add, and returns the name of what it computes."""
        return partial(self._add, kind)

    def _add(self, kind: str, *given: Any, **attributes: Any) -> str:
        from onnx import helper, numpy_helper

        made, names = f"{kind}_{len(self.nodes)}", []
        for n, each in enumerate(given):
            if not isinstance(each, str):  # an array
                self.tensors.append(numpy_helper.from_array(each, f"{made}_{n}"))
                each = f"{made}_{n}"
            names.append(each)
        self.nodes.append(helper.make_node(kind, names, [made], **attributes))
        return made

    def weight(self, name: str, *shape: int) -> str:
        """A float32 tensor of the released file, by its name there."""
        from onnx import TensorProto

        where = {"data_location": TensorProto.EXTERNAL, "external_data": [{"key": "location", "value": name}]}
        self.tensors.append(TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, **where))
        return name


def graph() -> bytes:
    """An ONNX model from "ids" and "places", int64 (n,), to float32 (384,)."""
    import numpy as np
    from onnx import TensorProto, helper

    g = _Graph()
    split, whole, axis, first = np.array([0, HEADS, -1]), np.array([0, -1]), np.array([0]), np.array(0)
    half, root, one = (np.array(value, np.float32) for value in (0.5, 0.5**0.5, 1))
    scale = np.array((SIZE / HEADS) ** -0.5, np.float32)

    def linear(x: str, name: str, n: int = SIZE, of: int = SIZE) -> str:
        return g.Gemm(x, g.weight(f"{name}.weight", n, of), g.weight(f"{name}.bias", n), transB=1)

    def norm(x: str, name: str) -> str:
        affine = g.weight(f"{name}.weight", SIZE), g.weight(f"{name}.bias", SIZE)
        return g.LayerNormalization(x, *affine, axis=-1, epsilon=EPSILON)

    def heads(x: str, name: str, order: list[int]) -> str:
        return g.Transpose(g.Reshape(linear(x, name), split), perm=order)

    def attention(x: str, at: str) -> str:
        query, value = (heads(x, f"{at}.{name}", [1, 0, 2]) for name in ("query", "value"))
        scores = g.MatMul(query, heads(x, f"{at}.key", [1, 2, 0]))
        read = g.MatMul(g.Softmax(g.Mul(scores, scale), axis=-1), value)
        return g.Reshape(g.Transpose(read, perm=[1, 0, 2]), whole)

    def gelu(x: str) -> str:
        return g.Mul(g.Mul(x, half), g.Add(g.Erf(g.Mul(x, root)), one))

    def table(name: str, rows: int, row: Any) -> str:
        return g.Gather(g.weight(f"embeddings.{name}_embeddings.weight", rows, SIZE), row)

    kind = table("token_type", 2, first)  # all tokens are of the first type
    places = g.Add(table("position", PLACES, "places"), kind)
    x = norm(g.Add(table("word", WORDS, "ids"), places), "embeddings.LayerNorm")
    for number in range(LAYERS):
        at = f"encoder.layer.{number}"
        read = linear(attention(x, f"{at}.attention.self"), f"{at}.attention.output.dense")
        x = norm(g.Add(x, read), f"{at}.attention.output.LayerNorm")
        inner = gelu(linear(x, f"{at}.intermediate.dense", INNER))
        x = norm(g.Add(x, linear(inner, f"{at}.output.dense", SIZE, INNER)), f"{at}.output.LayerNorm")
    mean = g.ReduceMean(x, axis, keepdims=0)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in ("ids", "places")]
    output = helper.make_tensor_value_info(mean, TensorProto.FLOAT, [SIZE])
    made = helper.make_graph(g.nodes, "MiniLM", inputs, [output], g.tensors)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return model.SerializeToString(deterministic=True)


if __name__ == "__main__":
    GRAPH.write_bytes(graph())
