"""Questions about graphs that torch.export gave, and what is mended in them."""
from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
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


def _operands(node: torch.fx.Node) -> list[torch.fx.Node]:
    return [n for n in node.all_input_nodes if n.op != "get_attr"]


def _calls(graph: torch.fx.Graph, known: set[torch.fx.Node]) -> Iterator[tuple[torch.fx.Node, bool]]:
    """The operations of a graph, and whether they are of what is `known` alone, which grows by them."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        is_known = known.issuperset(_operands(node)) and not is_random(node)
        if is_known or is_assertion(node):
            known.add(node)
        if not is_assertion(node):
            yield node, is_known


def _folded(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
    """What an operation on constants gives; None if that cannot be computed here."""
    def value(n: torch.fx.Node) -> Any:
        return getattr(n.graph.owning_module, n.target) if n.op == "get_attr" else values[n]

    try:
        with torch.no_grad():
            args, kwargs = map_arg((node.args, node.kwargs), value)
            return node.target(*args, **kwargs)
    except Exception:
        return None


def _operations(graph: torch.fx.Graph, values: dict[torch.fx.Node, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The operations of a graph, with the numbers in them, on what is not of constants alone, which have `values`; and those of their operands."""
    known = set(values)
    for node, is_known in _calls(graph, known):
        if is_known:
            values[node] = _folded(node, values)
            continue
        yield f"{node.target} {map_arg((node.args, node.kwargs), lambda n: '')}", [values[n] for n in _operands(node) if n in values]
        for region in regions(node):
            given = (n for n in region.graph.nodes if n.op == "placeholder")
            yield from _operations(region.graph, {inner: values[outer] for inner, outer in zip(given, _operands(node)) if outer in values})
    yield "output", [values[n] for n in graph.output_node().all_input_nodes if n in values]


def _constants(program: torch.export.ExportedProgram) -> set[torch.fx.Node]:
    return {node for spec, node in zip(program.graph_signature.input_specs, program.graph.nodes) if spec.kind == InputKind.CONSTANT_TENSOR}


def _variable(program: torch.export.ExportedProgram) -> list[tuple[str, list[Any]]]:
    specs = zip(program.graph_signature.input_specs, program.graph.nodes)
    constants = {node: program.constants[spec.target].clone() for spec, node in specs if spec.kind == InputKind.CONSTANT_TENSOR}
    return list(_operations(program.graph, constants))


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = (a.shape, a.dtype) == (b.shape, b.dtype)
        return same and (torch.equal(a, b) or a.is_floating_point() and torch.allclose(a, b, rtol=1e-12, atol=0.0, equal_nan=True))
    return type(a) is type(b) and a == b


def same_variable(a: torch.export.ExportedProgram, b: torch.export.ExportedProgram) -> bool:
    """Whether two graphs compute the same of inputs and of the state, in whatever way they compute constants of constants alone."""
    return a is b or _close(_variable(a), _variable(b))


def is_functional(program: torch.export.ExportedProgram, kept: Collection[torch._ops.OpOverload | str]) -> bool:
    """Whether run_decompositions, which traces all of it again, has nothing to do: no region, nothing that writes to a tensor, and no
    operation but `kept` on what is not a constant."""
    calls = ((node.target, is_known) for node, is_known in _calls(program.graph, _constants(program)) if node.target is not operator.getitem)
    return all(isinstance(operation, torch._ops.OpOverload) and (is_known or operation in kept or str(operation) in kept)
               and not operation._schema.is_mutable for operation, is_known in calls)


# What is mended in them.

def mend(program: torch.export.ExportedProgram, without_grad: Callable[[torch.fx.Node], bool], off: Collection[str]) -> None:
    """Has run_decompositions keep what a graph means. `without_grad` says of an operation whether gradients were turned off. The parameters
    `off`, which ask for no gradient in the end, get none: PyTorch asks in the backward."""
    for node in list(program.graph.nodes):
        if node.op == "placeholder" and program.graph_signature.inputs_to_parameters.get(node.name) in off:
            _detach_result(node)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            _mend_users(module.graph)
            _keep_detached(module.graph)
            _drop_assertions(module.graph)
            _keep_regions(module.graph)
            for region in _autocast_regions(module.graph):
                _detach(region.graph, without_grad)
            _keep_dropout(module.graph)
            _keep_filled(module.graph)
            _name_padding(module.graph)
            module.recompile()
    program.graph.eliminate_dead_code(_has_effect)  # as run_decompositions does: what nothing uses reads no parameter


def _keep_detached(graph: torch.fx.Graph) -> None:
    """Has what follows a `detach_` read its result, as run_decompositions drops it."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.aten.detach_.default:
            node.target = torch.ops.aten.detach.default
            node.args[0].replace_all_uses_with(node, delete_user_cb=lambda user, i=order[node]: order[user] > i)


def _drop_assertions(graph: torch.fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if is_assertion(node) and not node.users:
            graph.erase_node(node)


def _mend_users(graph: torch.fx.Graph) -> None:
    """Notes all users of each node: torch.export forgets some of those before a `no_grad` region."""
    for node in graph.nodes:
        for operand in node.all_input_nodes:
            operand.users.setdefault(node)


def _keep_regions(graph: torch.fx.Graph) -> None:
    """Detaches what `no_grad` regions return and what they write to tensors, which may be through a view that they do not return:
    run_decompositions inlines them and forgets it. (Of autocast it traces the casts.)"""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not torch.ops.higher_order.wrap_with_set_grad_enabled or node.args[0]:
            continue
        for inner in [inner for region in regions(node) for inner in region.graph.nodes if _writes(inner)]:
            _detach_read(inner)
        for result in list(node.users):
            _detach_result(result)


def _writes(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False)


def _autocast_regions(graph: torch.fx.Graph) -> list[torch.fx.GraphModule]:
    return [region for node in graph.nodes if node.target is torch.ops.higher_order.wrap_with_autocast for region in regions(node)]


def _detach(graph: torch.fx.Graph, without_grad: Callable[[torch.fx.Node], bool]) -> None:
    """Detaches what is computed without gradients in a region of autocast, where torch.export forgets those of `no_grad`."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not without_grad(node):
            continue
        if _writes(node):
            _detach_read(node)
        elif isinstance(value := node.meta.get("val"), torch.Tensor) and value.is_floating_point():
            _detach_result(node)


def _detach_result(node: torch.fx.Node) -> None:
    with node.graph.inserting_after(node):
        detached = node.graph.call_function(torch.ops.aten.detach.default, (node,))
    detached.meta.update(node.meta)
    node.replace_all_uses_with(detached, delete_user_cb=lambda user: user is not detached)


def _detach_read(node: torch.fx.Node) -> None:
    """Detaches the operands of what writes to tensors, but for those."""
    arguments = node.target._schema.arguments
    given = dict(zip((a.name for a in arguments), node.args)) | node.kwargs
    written: list[torch.fx.Node] = []
    map_arg([given.get(a.name) for a in arguments if a.is_write], written.append)
    for operand in node.all_input_nodes:
        value = operand.meta.get("val")
        if operand not in written and isinstance(value, torch.Tensor) and value.is_floating_point():
            with node.graph.inserting_before(node):
                detached = node.graph.call_function(torch.ops.aten.detach.default, (operand,))
            detached.meta.update(operand.meta)
            node.replace_input_with(operand, detached)


def _keep_filled(graph: torch.fx.Graph) -> None:
    """Makes `fill_` and `zero_` of floats copies: run_decompositions would make them constants, and forget that what they change has zeros as
    its gradient, by which an optimizer decays parameters."""
    aten = torch.ops.aten
    for node in list(graph.nodes):
        if node.target not in (aten.fill_.Scalar, aten.zero_.default) or not node.args[0].meta["val"].is_floating_point():
            continue
        with graph.inserting_before(node):
            filled = graph.call_function(aten.full_like.default, (node.args[0], node.args[1] if len(node.args) > 1 else 0))
            filled.meta.update(node.meta)
        node.target, node.args, node.kwargs = aten.copy_.default, (node.args[0], filled), {}


def _keep_dropout(graph: torch.fx.Graph) -> None:
    """Makes `dropout_` a dropout and a copy: run_decompositions would draw by `bernoulli_`, and dropout would be two operations."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is torch.ops.aten.dropout_.default:
            with graph.inserting_before(node):
                dropped = graph.call_function(torch.ops.aten.dropout.default, node.args, node.kwargs)
                dropped.meta.update(node.meta)
            node.target, node.args, node.kwargs = torch.ops.aten.copy_.default, (node.args[0], dropped), {}


def _name_padding(graph: torch.fx.Graph) -> None:
    """Makes `pad` by a constant the operation of that name."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.aten.pad.default and not node.kwargs:
            x, pad, mode, value = (*node.args, *("constant", None)[len(node.args) - 2:])
            if mode == "constant":
                node.target, node.args = torch.ops.aten.constant_pad_nd.default, (x, pad, value or 0.0)


def _has_effect(node: torch.fx.Node) -> bool:
    """PyTorch's is_impure sees no region that only writes, as one of `no_grad` that moves buffers."""
    return node.is_impure() or any(_has_effect(n) for region in regions(node) for n in region.graph.nodes if n.op == "call_function")
