"""Cuts an ONNX model in two at a tensor, without the ``onnx`` package.

A model file is a protobuf message; what is copied here are whole fields of it, byte for byte.
Numbers of fields: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_VALUE_INFO = 1, 5, 11, 12, 13
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_ATTRIBUTE = 1, 2, 3, 5
_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 6, 11
_INITIALIZER_NAME = 8
_VALUE_NAME, _VALUE_TYPE = 1, 2
_FLOAT_TENSOR = b"\x0a\x02\x08\x01"
"""A ``TypeProto``: tensor_type (1) with elem_type (1) FLOAT (1), of any shape."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class CannotCut(ValueError):
    """The model's structure is not as expected, or the file is not a model."""


@dataclass(slots=True)
class _Node:
    raw: memoryview
    name: str
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Graph:
    nodes: list[_Node] = field(default_factory=list)
    initializers: dict[str, memoryview] = field(default_factory=dict)
    inputs: dict[str, memoryview] = field(default_factory=dict)
    outputs: dict[str, memoryview] = field(default_factory=dict)
    rest: list[memoryview] = field(default_factory=list)


def cut(model: bytes, prefix: str) -> tuple[bytes, bytes, str]:
    """The model up to its nodes whose names begin with ``prefix``, the model from there on, and
    the name of the one float tensor between them.

    The second one has that tensor as its only input. Raises ``CannotCut`` if the nodes need more
    than one tensor from outside, or the model has branches or loops.
    """
    others, graph = _parse(model)
    tensor = _between(graph, prefix)
    made = {output: node for node in graph.nodes for output in node.outputs}
    first = _needed([tensor], made, stop=set())
    second = _needed(graph.outputs, made, stop={tensor})
    taken = {name for node in second for name in node.inputs}
    if taken & graph.inputs.keys():
        raise CannotCut(f"what follows {tensor} also needs the model's inputs")
    head = _graph(graph, first, [*graph.inputs.values()], [_value(_GRAPH_OUTPUT, tensor)])
    tail = _graph(graph, second, [_value(_GRAPH_INPUT, tensor)], [*graph.outputs.values()])
    return b"".join((*others, head)), b"".join((*others, tail)), tensor


def _between(graph: _Graph, prefix: str) -> str:
    inside = [node for node in graph.nodes if node.name.startswith(prefix)]
    made = {output for node in inside for output in node.outputs}
    constants = {o for node in graph.nodes if not node.inputs for o in node.outputs}
    needed = {name for node in inside for name in node.inputs if name}
    outside = needed - made - constants - graph.initializers.keys()
    if len(outside) != 1:
        raise CannotCut(f"{len(outside)} tensors lead to nodes named {prefix}..., not 1")
    return outside.pop()


def _needed(names: Iterable[str], made: dict[str, _Node], stop: set[str]) -> list[_Node]:
    """All nodes that ``names`` depend on, but for what only ``stop`` depends on."""
    wanted, found = list(names), dict[int, _Node]()
    while wanted:
        name = wanted.pop()
        node = made.get(name)
        if name not in stop and node is not None and id(node) not in found:
            found[id(node)] = node
            wanted += node.inputs
    return list(found.values())


def _graph(
    graph: _Graph, nodes: list[_Node], inputs: list[memoryview], outputs: list[memoryview]
) -> bytes:
    """A graph field of some of the nodes, in their order."""
    kept = {id(node) for node in nodes}
    used = {name for node in nodes for name in node.inputs}
    parts = [
        *(node.raw for node in graph.nodes if id(node) in kept),
        *graph.rest,
        *(raw for name, raw in graph.initializers.items() if name in used),
        *inputs,
        *outputs,
    ]
    size = sum(map(len, parts))
    return b"".join((_varint(_MODEL_GRAPH << 3 | _BYTES), _varint(size), *parts))


def _value(number: int, name: str) -> memoryview:
    """The field ``number`` of a graph that declares a float tensor."""
    said = _bytes_field(_VALUE_NAME, name.encode()) + _bytes_field(_VALUE_TYPE, _FLOAT_TENSOR)
    return memoryview(_bytes_field(number, said))


# --- reading and writing protobuf -----------------------------------------------------------------


def _parse(model: bytes) -> tuple[list[memoryview], _Graph]:
    others: list[memoryview] = []
    graph = _Graph()
    for number, raw, value in _fields(memoryview(model)):
        if number != _MODEL_GRAPH:
            others.append(raw)
            continue
        for inner, part, content in _fields(value):
            _add(graph, inner, part, content)
    if not graph.nodes:
        raise CannotCut("there is no graph")
    return others, graph


def _add(graph: _Graph, number: int, raw: memoryview, value: memoryview) -> None:
    if number == _GRAPH_NODE:
        graph.nodes.append(_node(raw, value))
    elif number == _GRAPH_INITIALIZER:
        graph.initializers[_text(value, _INITIALIZER_NAME)] = raw
    elif number == _GRAPH_INPUT:
        graph.inputs[_text(value, _VALUE_NAME)] = raw
    elif number == _GRAPH_OUTPUT:
        graph.outputs[_text(value, _VALUE_NAME)] = raw
    elif number != _GRAPH_VALUE_INFO:
        graph.rest.append(raw)


def _node(raw: memoryview, value: memoryview) -> _Node:
    node = _Node(raw, "")
    for number, _, content in _fields(value):
        if number == _NODE_INPUT:
            node.inputs.append(_decoded(content))
        elif number == _NODE_OUTPUT:
            node.outputs.append(_decoded(content))
        elif number == _NODE_NAME:
            node.name = _decoded(content)
        elif number == _NODE_ATTRIBUTE:
            inner = {each for each, _, _ in _fields(content)}
            if inner & {_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS}:
                raise CannotCut("the model has branches or loops")
    return node


def _text(message: memoryview, number: int) -> str:
    return next((_decoded(v) for each, _, v in _fields(message) if each == number), "")


def _decoded(value: memoryview) -> str:
    return bytes(value).decode("utf-8", "replace")


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Number, whole field and value of each field; numbers have an empty value."""
    at = 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        value = message[:0]
        if key & 7 == _BYTES:
            size, at = _read_varint(message, at)
            value = message[at : at + size]
            at += size
        elif key & 7 == _VARINT:
            _, at = _read_varint(message, at)
        elif key & 7 in (_FIXED32, _FIXED64):
            at += 4 if key & 7 == _FIXED32 else 8
        else:
            raise CannotCut("the file is no protobuf message")
        if at > len(message):
            raise CannotCut("the file ends too early")
        yield key >> 3, message[start:at], value


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise CannotCut("the file is no protobuf message")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))


def _bytes_field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value
