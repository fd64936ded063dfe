"""What a step's workspace holds at each command, and so the least that any plan of these commands could take."""
from commands import READ, commands
from common import RUNTIME_LIBRARY
from trainc_ctypes import Runtime, Trainer

ORDER = ("first", "apply")  # the lists of an update of one micro-step


def accesses(trainer, entry="step"):
    """[(begin, end, whether it is read) of each operand in the workspace] for each command of an update."""
    workspace, lists = trainer.descriptor.workspace_arena, commands(trainer, entry)
    return [[(o.offset, o.offset + o.bytes, bool(o.access & READ)) for o in c.operands[:c.num_operands]
             if o.base == workspace and o.bytes] for name in ORDER for c in lists[name]]


def live_bytes(steps):
    """Bytes alive at each command: those that it reads or writes, and those that are read later before they are written."""
    cuts = sorted({x for step in steps for begin, end, _ in step for x in (begin, end)})
    index, live = {x: i for i, x in enumerate(cuts)}, [0] * len(steps)
    last = [None] * len(cuts)  # the command before that used the piece from this cut to the next
    for t, step in enumerate(steps):
        used = {}  # piece -> whether it is read
        for begin, end, reads in step:
            for piece in range(index[begin], index[end]):
                used[piece] = used.get(piece, False) or reads
        for piece, reads in used.items():
            since = last[piece] + 1 if reads and last[piece] is not None else t
            for between in range(since, t + 1):
                live[between] += cuts[piece + 1] - cuts[piece]
            last[piece] = t
    return live


def plan_and_bound(library):
    """(bytes of the step's workspace, the most that is alive at one command)."""
    with Trainer(Runtime(RUNTIME_LIBRARY), library) as trainer:
        entry = trainer.descriptor.entries[trainer.entries["step"]]
        if entry.accumulate != 1:
            raise ValueError("expects a step of one micro-step")
        return entry.workspace_bytes, max(live_bytes(accesses(trainer)))
