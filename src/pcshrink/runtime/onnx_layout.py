"""Exact rewrites of ONNX files with kept gates, after which onnxruntime merges more and stays in its own layout.

A factor s that ends with a hard sigmoid is never negative, so ``relu(s * y)`` is ``s * relu(y)``, and the ReLU becomes
part of the convolution that gives y. ReLU6 has an upper bound, so it must stay behind the product. In its blocked
layout onnxruntime knows it only as part of a convolution, and would change the layout of the whole map to and fro; so
it gets a convolution of its own that changes nothing.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pcshrink.runtime.optional import require

FACTOR = "HardSigmoid"  # the operation that the factors of gates end with which are rewritten


def keep_layout(file: Path) -> None:
    """Rewrite what follows kept gates of images, if the file has any."""
    if FACTOR.encode() not in file.read_bytes():
        return
    onnx = require("onnx")
    model = onnx.load(str(file))
    if _Gates(onnx, model.graph).rewrite():
        onnx.save(model, str(file))


class _Gates:
    """The products of images and factors of gates in a graph."""

    def __init__(self, onnx: Any, graph: Any) -> None:
        self.onnx, self.graph = onnx, graph
        self.makers = {name: node for node in graph.node for name in node.output}
        self.uses = Counter(name for node in graph.node for name in node.input)
        self.uses.update(output.name for output in graph.output)
        self.weights = {tensor.name: tensor for tensor in graph.initializer}

    def rewrite(self) -> bool:
        """Whether there was anything to rewrite."""
        nodes: list[Any] = []
        changed = False
        for node in self.graph.node:
            product = self.makers.get(node.input[0]) if node.op_type in ("Relu", "Clip") else None
            channels = self._channels(product)
            if product is None or not channels or self.uses[product.output[0]] > 1:
                nodes.append(node)
                continue
            changed = True
            if node.op_type == "Clip":
                nodes += [self._copy_of(node, channels), node]
            else:
                nodes.remove(product)
                self._swap(product, node)
                nodes += [node, product]
        del self.graph.node[:]
        self.graph.node.extend(nodes)
        return changed

    def _channels(self, product: Any) -> int:
        """How many channels a gate has whose product with images (its first factor) this is; 0 for anything else."""
        if product is None or product.op_type != "Mul":
            return 0
        made = self._maker(product.input[1])
        if made is not None and made.op_type == "Resize":
            made = self._maker(made.input[0])
        if made is None or made.op_type != FACTOR:
            return 0
        last = self._maker(made.input[0])
        weight = self.weights.get(self._source(last.input[1])) if last is not None and last.op_type == "Conv" else None
        return weight.dims[0] if weight is not None and weight.data_type == self.onnx.TensorProto.FLOAT else 0

    def _maker(self, name: str) -> Any:
        return self.makers.get(self._source(name))

    def _source(self, name: str) -> str:
        """What a tensor was before steps of exporters that do nothing."""
        while (maker := self.makers.get(name)) is not None and self._does_nothing(maker):
            name = maker.input[0]
        return name

    def _does_nothing(self, node: Any) -> bool:
        """These factors are made in float32, so a cast to that changes nothing."""
        if node.op_type == "Cast":
            return bool(node.attribute[0].i == self.onnx.TensorProto.FLOAT)
        return bool(node.op_type == "Identity")

    def _copy_of(self, clip: Any, channels: int) -> Any:
        """A convolution by one that ``clip`` reads from now on."""
        ones = f"ones_{channels}"
        if ones not in self.weights:
            self.weights[ones] = self.onnx.numpy_helper.from_array(np.ones((channels, 1, 1, 1), np.float32), ones)
            self.graph.initializer.append(self.weights[ones])
        before, clip.input[0] = clip.input[0], f"{clip.input[0]}_copy"
        return self.onnx.helper.make_node(
            "Conv", [before, ones], [clip.input[0]], group=channels, kernel_shape=[1, 1], name=clip.input[0]
        )

    def _swap(self, product: Any, relu: Any) -> None:
        """Let the ReLU come before the product."""
        between, end = product.output[0], relu.output[0]
        relu.input[0], relu.output[0] = product.input[0], between
        product.input[0], product.output[0] = between, end
