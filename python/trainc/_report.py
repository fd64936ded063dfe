"""What a step trains, as text."""
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._arrays import DTYPES
from ._runtime import ROLES
from ._trainer import shape_of


def _size(tensors: list, what: str) -> str:
    """How many there are, of how many elements and of which types."""
    elements = sum(math.prod(shape_of(t)) for t in tensors)
    return f"{len(tensors)} {what}{'s' * (len(tensors) != 1)} of {elements} element{'s' * (elements != 1)} in {_types(tensors)}"


def _types(tensors: Iterable[Any]) -> str:
    return " and ".join(sorted({DTYPES[t.dtype] for t in tensors}))


def trained(d: Any, kinds: Mapping[str, str], numbers_of: Callable[[str], Mapping[str, float]]) -> list[str]:
    """Lines on the groups of an artifact (its descriptor), on what is frozen and on buffers. kinds: optimizers by groups, as far as they are
    known. numbers_of: the hyperparameters of a group."""
    of_role: dict[str, dict[str, list]] = {role: defaultdict(list) for role in ROLES}
    for t in d.tensors[:d.num_tensors]:
        of_role[ROLES[t.role]][t.name.decode()].append(t)
    masters = {name: tensors[0] for name, tensors in of_role["parameter"].items()}
    copies = {name: tensors[0] for name, tensors in of_role["compute"].items()}

    def computed(names: Iterable[str]) -> str:
        narrow = [copies[name] for name in names if name in copies]
        return f", computed with in {_types(narrow)}" if narrow else ""

    lines = []
    for i, group in enumerate(name.decode() for name in d.groups[:d.num_groups]):
        own = {name: t for name, t in masters.items() if t.group == i}
        states = [t for name in own for t in of_role["state"][name]]
        kind = f" ({kinds[group]})" if group in kinds else ""
        line = f"trained by {group}{kind}: {_size(list(own.values()), 'parameter')}{computed(own)}"
        if states:
            line += f", states {', '.join(dict.fromkeys(t.state.decode() for t in states))} in {_types(states)}"
        lines.append("; ".join([line, *(f"{name} = {value:g}" for name, value in numbers_of(group).items())]))
    frozen = {name: t for name, t in masters.items() if t.group < 0}
    narrow = {name: t for name, t in copies.items() if name not in masters}
    lines += [f"frozen: {_size([*frozen.values(), *narrow.values()], 'parameter')}{computed(frozen)}"] if frozen or narrow else []
    buffers = [t for tensors in of_role["buffer"].values() for t in tensors]
    return lines + ([f"not trained: {_size(buffers, 'buffer')}"] if buffers else [])
