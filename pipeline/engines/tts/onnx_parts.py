"""Cuts an ONNX model in two at a tensor, without the ``onnx`` package (17 MB).

A model file is a protobuf message. Only the few fields that a cut needs are declared here; protobuf
copies the rest unchanged, as unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

_SCHEMA = {
    "Model": "graph:7:Graph",
    "Graph": "node:1:Node* initializer:5:Tensor* input:11:Value* output:12:Value* value_info:13:*",
    "Node": "input:1:* output:2:* name:3: attribute:5:Attribute*",
    "Attribute": "g:6: graphs:11:*",
    "Tensor": "name:8:",
    "Value": "name:1: type:2:",
}
"""Message -> fields, as name:number:message (bytes if left out), with a star if repeated. Numbers
from https://github.com/onnx/onnx/blob/main/onnx/onnx.proto"""
_FLOAT_TENSOR = b"\x0a\x02\x08\x01"
"""A ``TypeProto``: tensor_type (1) with elem_type (1) FLOAT (1), any shape."""


class CannotCut(ValueError):
    """The model's structure is not as expected, or the file is not a model."""


def cut(model: bytes, prefix: str) -> tuple[bytes, bytes, str]:
    """Cut a model before its nodes whose names begin with ``prefix``. Returns the part before, the
    part after, and the name of the one float tensor between them.

    That tensor is the only input of the second part. Raises ``CannotCut`` if the nodes need more
    than one tensor from outside, or the model has branches or loops.
    """
    whole = _parse(model)
    graph = whole.graph
    tensor = _between(graph, prefix.encode())
    producers = {output: node for node in graph.node for output in node.output}
    first = _needed([tensor], producers, stop=set())
    second = _needed([each.name for each in graph.output], producers, stop={tensor})
    inputs = {name for node in second for name in node.input}
    if inputs & {each.name for each in graph.input}:
        raise CannotCut(f"what follows {tensor!r} also needs the model's inputs")
    border = _message("Value")(name=tensor, type=_FLOAT_TENSOR)
    head = _part(whole, first, graph.input, [border])
    tail = _part(whole, second, [border], graph.output)
    return head, tail, tensor.decode()


def _between(graph: Any, prefix: bytes) -> bytes:
    inside = [node for node in graph.node if node.name.startswith(prefix)]
    outputs = {output for node in inside for output in node.output}
    constants = {output for node in graph.node if not node.input for output in node.output}
    constants |= {each.name for each in graph.initializer}
    outside = {name for node in inside for name in node.input if name} - outputs - constants
    if len(outside) != 1:
        raise CannotCut(f"{len(outside)} tensors lead to nodes named {prefix!r}..., not 1")
    tensor: bytes = outside.pop()
    return tensor


def _needed(names: Iterable[bytes], producers: dict[bytes, Any], stop: set[bytes]) -> list[Any]:
    """All nodes that ``names`` depend on, without looking beyond the tensors in ``stop``."""
    open_names, nodes = list(names), dict[int, Any]()
    while open_names:
        name = open_names.pop()
        node = producers.get(name)
        if name not in stop and node is not None and id(node) not in nodes:
            nodes[id(node)] = node
            open_names += node.input
    return list(nodes.values())


def _part(whole: Any, nodes: list[Any], inputs: Iterable[Any], outputs: Iterable[Any]) -> bytes:
    """The model reduced to these nodes, in their order, and the weights that they use."""
    part = _message("Model")()
    part.CopyFrom(whole)
    results = {output for node in nodes for output in node.output}
    needs = {name for node in nodes for name in node.input}
    for name, some in (
        ("node", [each for each in whole.graph.node if results & set(each.output)]),
        ("initializer", [each for each in whole.graph.initializer if each.name in needs]),
        ("input", inputs),
        ("output", outputs),
        ("value_info", []),
    ):
        part.graph.ClearField(name)
        getattr(part.graph, name).extend(some)
    data: bytes = part.SerializeToString()
    return data


def _parse(model: bytes) -> Any:
    from google.protobuf.message import DecodeError

    whole = _message("Model")()
    try:
        whole.ParseFromString(model)
    except DecodeError as error:
        raise CannotCut("the file is not an ONNX model") from error
    if not whole.graph.node:
        raise CannotCut("there is no graph")
    if any(each.HasField("g") or each.graphs for n in whole.graph.node for each in n.attribute):
        raise CannotCut("the model has branches or loops")
    return whole


@cache
def _message(name: str) -> Any:
    """The class of one of the messages in ``_SCHEMA``."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"onnx_parts.{name}"))


@cache
def _pool() -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name="onnx_parts.proto", package="onnx_parts")
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for each in fields.split():
            key, number, kind = each.split(":")
            field = message.field.add(name=key, number=int(number))
            field.label = Field.LABEL_REPEATED if kind.endswith("*") else Field.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            field.type = Field.TYPE_MESSAGE if kind else Field.TYPE_BYTES
            if kind:
                field.type_name = f".onnx_parts.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    return pool
