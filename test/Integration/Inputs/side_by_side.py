"""Programs of several ranks as one evaluation: what `trainc --mesh=... --stop-after=gradients` writes, for all ranks side by
side, a `train.all_reduce` being a sum of their values and a `train.all_gather` one after another. No communication is needed to see what they compute together.
"""
import itertools
import re

NAME = re.compile(r"%([\w$.-]+)")
AXES = re.compile(r'over (\[[^]]*\])')


def statements(lines):
    """Lines with the regions that they open, as one text each."""
    text, depth = [], 0
    for line in lines:
        text.append(line)
        depth += line.count("{") - line.count("}")
        if depth == 0:
            yield "\n".join(text)
            text = []


def entries(module):
    """{name: (head, statements)} of the entries of a printed module."""
    found, lines = {}, module.splitlines()
    for i, line in enumerate(lines):
        match = re.match(r"( *)train\.(step|eval) @(\w+)\(", line)
        if match:
            end = lines.index(match[1] + "}", i)
            found[match[3]] = line, list(statements(lines[i + 1:end]))
    return found


def parse_inputs(head):
    """[(name, shape, element, axes of each dimension)] of the inputs of an entry."""
    inputs = []
    for name, dims, element, split in re.findall(r"%(\w+): tensor<((?:\d+x)*)(\w+)>(?: split\(((?:\[[^]]*\](?:, )?)*)\))?", head):
        shape = [int(n) for n in dims.split("x") if n]
        axes = [[a for a in part.split(", ") if a] for part in re.findall(r"\[([^]]*)\]", split)]
        inputs.append((name, shape, element, axes + [[]] * (len(shape) - len(axes))))
    return inputs


def output_names(head):
    return re.findall(r'"([^"]*)"', head[head.index("-> ("):].split(")")[0]) if "-> (" in head else []


class Mesh:
    def __init__(self, axes):
        """`axes`: {name: size}, the slowest first."""
        self.axes = axes
        self.ranks = [dict(zip(axes, place)) for place in itertools.product(*map(range, axes.values()))]

    def index(self, rank, names):
        index = 0
        for name in names:
            index = index * self.axes[name] + self.ranks[rank].get(name, 0)
        return index

    def parts(self, names):
        parts = 1
        for name in names:
            parts *= self.axes[name]
        return parts

    def peers(self, rank, names):
        """The ranks that differ from `rank` in these axes alone."""
        return [r for r, place in enumerate(self.ranks)
                if all(place[a] == self.ranks[rank][a] for a in self.axes if a not in names)]


def tensor(shape, element):
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


def evaluation(name, head, body, mesh):
    """The text of `train.eval @name`, of global inputs, that computes what all ranks do, and its outputs in order: for a
    step `OUTPUT@RANK`, `loss`, `weight`, `grad.PARAMETER` (sums over ranks) and `buffer.BUFFER@RANK`, for an eval `OUTPUT@RANK`.
    """
    lines, outputs, gradients, aliases = [], [], {}, {}
    ranks = range(len(mesh.ranks))

    def rename(text, rank):
        return NAME.sub(lambda m: aliases.get((rank, m[1]), f"%r{rank}_{m[1]}"), text)

    def total(values, type):
        result = values[0]
        for value in values[1:]:
            lines.append(f"%sum{len(lines)} = nn.add {result}, {value} : {type}, {type}")
            result = f"%sum{len(lines) - 1}"
        return result

    arguments = []
    for x, shape, element, split in parse_inputs(head):
        whole = [n * mesh.parts(axes) for n, axes in zip(shape, split)]
        arguments.append(f"%{x}: {tensor(whole, element)}")
        for rank in ranks:
            offsets = [n * mesh.index(rank, axes) for n, axes in zip(shape, split)]
            if shape:
                lines.append(f"%r{rank}_{x} = nn.slice %{x} offsets {offsets} sizes {shape} : {tensor(whole, element)}")
            else:
                aliases[rank, x] = f"%{x}"
    for text in body:
        text = text.strip()
        if " = train.all_reduce " in text:
            result, operand, axes, type = re.fullmatch(
                r"(%\S+) = train\.all_reduce (%\S+) over (\[.*?\]) : (\S+)", text).groups()
            for rank in ranks:
                values = [rename(operand, r) for r in mesh.peers(rank, re.findall(r'"([^"]*)"', axes))]
                aliases[rank, result[1:]] = total(values, type)
        elif " = train.all_gather " in text:
            result, operand, axes, type = re.fullmatch(
                r"(%\S+) = train\.all_gather (%\S+) over (\[.*?\]) : (\S+) -> \S+", text).groups()
            for rank in ranks:
                values = [rename(operand, r) for r in mesh.peers(rank, re.findall(r'"([^"]*)"', axes))]
                lines.append(f"{rename(result, rank)} = nn.concat {', '.join(values)} dim 0 : {', '.join([type] * len(values))}")
        elif " = train.process_index " in text:
            result, axes = re.fullmatch(r"(%\S+) = train\.process_index over (\[.*?\]) : tensor<i64>", text).groups()
            for rank in ranks:
                index = mesh.index(rank, re.findall(r'"([^"]*)"', axes))
                lines.append(f"{rename(result, rank)} = nn.constant dense<{index}> : tensor<i64>")
        elif " = train.seed " in text:
            result, type = re.fullmatch(r"(%\S+) = train\.seed \S+ : (\S+)", text).groups()
            for rank in ranks:
                lines.append(f"{rename(result, rank)} = nn.constant dense<1.0> : {type}")
        elif " = train.barrier " in text:
            result, operand = re.match(r"(%\S+) = train\.barrier (%\S+) ", text).groups()
            for rank in ranks:
                aliases[rank, result[1:]] = rename(operand, rank)
        elif text.startswith("train.store_gradient "):
            parts, param, type = re.fullmatch(r"train\.store_gradient (.*) into @(\S+) : (.*)", text).groups()
            type = type.split(", ")[0]
            terms = [v for rank in ranks for v in rename(parts, rank).split(", ")]
            gradients[param] = f"grad.{param}", total(terms, type), type
        elif text.startswith("train.write "):
            value, buffer, type = re.fullmatch(r"train\.write (%\S+) to @(\S+) : (\S+)", text).groups()
            outputs += [(f"buffer.{buffer}@{rank}", rename(value, rank), type) for rank in ranks]
        elif text.startswith("train.yield "):
            values, loss, weight, types = re.fullmatch(
                r"train\.yield(?: (%.*?))?(?: loss\((\S+)\))?(?: weight\((\S+)\))? : (.*)", text).groups()
            values, types = values.split(", ") if values else [], types.split(", ")
            for rank in ranks:
                outputs += [(f"{n}@{rank}", rename(v, rank), t) for n, v, t in zip(output_names(head), values, types)]
            for what, value, type in zip(("loss", "weight"), (loss, weight), types[len(values):]):
                if value:
                    outputs.append((what, total([rename(value, r) for r in ranks], type), type))
        else:
            lines += [rename(text, rank) for rank in ranks]
    outputs += gradients.values()
    names = ", ".join(f'"{n}"' for n, _, _ in outputs)
    lines.append(f"train.yield {', '.join(v for _, v, _ in outputs)} : {', '.join(t for _, _, t in outputs)}")
    return "\n".join([f"train.eval @{name}({', '.join(arguments)}) -> ({names}) {{", *lines, "}"]), [n for n, _, _ in outputs]
