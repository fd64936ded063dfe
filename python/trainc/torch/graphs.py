"""Questions about graphs that torch.export gave."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.fx.node import map_arg


def is_assertion(node: torch.fx.Node) -> bool:
    """Of what export has seen to hold, and of what a decomposition of torch.linalg has met."""
    check = node.args[1] if node.target is torch.ops.higher_order.with_effects else node.target
    return str(check).startswith(("aten._assert", "aten._linalg_check_errors"))


def is_random(node: torch.fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def regions(node: torch.fx.Node) -> list[torch.fx.GraphModule]:
    """The graphs that an operation calls: of `no_grad` and of autocast."""
    names = [n.target for n in node.all_input_nodes if n.op == "get_attr"]
    parts = dict(node.graph.owning_module.named_modules()) if names and node.graph.owning_module else {}
    return [parts[name] for name in names if isinstance(parts.get(name), torch.fx.GraphModule)]


def _graphs(program: torch.export.ExportedProgram) -> list[str]:
    return [str(module.graph) for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]


def _equal(a: Any, b: Any) -> bool:
    return not isinstance(a, torch.Tensor) or a.dtype == b.dtype and torch.equal(a, b)


def constants_read(program: torch.export.ExportedProgram | None) -> dict[int, torch.Tensor]:
    """The constants that something in a graph uses, by id."""
    specs = zip(program.graph_signature.input_specs, program.graph.nodes) if program else ()
    read = (program.constants[spec.target] for spec, node in specs if program and spec.kind == InputKind.CONSTANT_TENSOR and node.users)
    return {id(constant): constant for constant in read}


def same(a: torch.export.ExportedProgram | None, b: torch.export.ExportedProgram | None) -> bool:
    """Whether two graphs have the same operations and constants."""
    return a is b or bool(a and b and _graphs(a) == _graphs(b) and all(map(_equal, a.constants.values(), b.constants.values())))


def _operations(graph: torch.fx.Graph, known: set[torch.fx.Node]) -> Iterator[str]:
    """The operations of a graph, and the numbers in them, on what is not `known`."""
    for node in graph.nodes:
        operands = [n for n in node.all_input_nodes if n.op != "get_attr"]
        if node.op != "call_function" or is_assertion(node) or known.issuperset(operands) and not is_random(node):
            known |= {node} if node.op == "call_function" else set()
            continue
        yield f"{node.target} {map_arg((node.args, node.kwargs), lambda n: '')}"
        for region in regions(node):
            given = (n for n in region.graph.nodes if n.op == "placeholder")
            yield from _operations(region.graph, {inner for inner, outer in zip(given, operands) if outer in known})


def variable(program: torch.export.ExportedProgram) -> list[str]:
    """What a graph computes of inputs and of the state, but not what it computes of constants alone."""
    specs = zip(program.graph_signature.input_specs, program.graph.nodes)
    return list(_operations(program.graph, {node for spec, node in specs if spec.kind == InputKind.CONSTANT_TENSOR}))
