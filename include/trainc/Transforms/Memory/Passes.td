//===- Passes.td - The memory of commands (form 3) -*- tablegen -*--------===//
#ifndef TRAINC_TRANSFORMS_MEMORY_PASSES
#define TRAINC_TRANSFORMS_MEMORY_PASSES

include "mlir/Pass/PassBase.td"

def RecomputePass : Pass<"train-recompute", "::mlir::ModuleOp"> {
  let summary = "Compute values again where a memory limit does not let them be kept";
  let description = [{
    If arenas and workspace would take more than `limit` bytes, repeats launches and GEMMs
    before later users of their results, so that these need not be kept until then: casts,
    norms, gelu, dropout, then GEMMs and whole blocks, by the estimated time per byte
    that is freed where there are too many. What stands in slices that the list changes, or
    comes from collectives, is kept. A command is repeated as it is, or those operations of
    its kernel that lead to the result, with the same inputs: no result changes.

    What takes how long is estimated (Analysis/Cost.h) by the measured `rates`, as `trainc
    --bandwidth` takes them, and by what is assumed of a CPU, or with gpu=true of a GPU, where
    one is not given. The attribute `recomputed` of a list says how many values there are, how
    many bytes of workspace they save and their part of the list's estimated time; there is
    a remark for each.

    Needs lists of launches and GEMMs, before `train-plan-memory`, with whose layout it
    counts. Does nothing without a limit, or below it. If no choice is found, an error says how
    much would do. Runs after `train-defer-reduce`: buckets that are in flight for longer take
    memory, which counts.

    Example: test/Transforms/Memory/recompute.mlir
  }];
  let options = [Option<"limit", "limit", "int64_t", "0", "Bytes of arenas and workspace; 0: no limit">,
                 Option<"gpu", "gpu", "bool", "false", "Commands run on a GPU">,
                 ListOption<"rates", "rates", "std::string", "Measured rates of the machine, name=number">];
  let statistics = [Statistic<"numRecomputed", "recomputed", "Values computed again">];
}

def PlanMemoryPass : Pass<"train-plan-memory", "::mlir::ModuleOp"> {
  let summary = "Give every value of a list an address";
  let description = [{
    Results that are written to a slice, or returned by an eval, are produced in place
    where no command still needs the slice's old value; the others get an offset in the
    workspace by liveness. The list then is in its buffer form: commands on memrefs, each a
    `train.address` or a `train.view` of one, with results in `outs`; what is in place is one
    operand there. Reads, writes and returned values become addresses and copies,
    collectives a `train.start` and a `train.wait`. The list says how large its workspace
    is, and the largest sum of bytes that are needed at one command (`alive`), which no
    plan can undercut: of several orders in which values choose their offsets, the best is
    taken. With reuse=false no two values share memory.

    Refuses a value that is used after its slice was written. One that is needed after a
    command changes it in place, as two equal values that became one may be, is copied for
    that command. An input that is a gradient, and may stand where that is written, is copied
    before all else if more than a sum, element by element, needs it.

    Operands of a `train.flatten` that nothing needs later are produced where they stand in
    it; others are copied. What a collective works on in place stays until the next one of
    all its axes, or the list's end: until then peers may read it.

    Needs lists of launches and GEMMs (`train-form-kernels`). Runs after `train-recompute`: what
    is computed again is needed for a shorter time, and this one gives addresses by that.

    Example: test/Transforms/Memory/plan-memory.mlir
  }];
  let options = [Option<"reuse", "reuse", "bool", "true", "Share memory between values">];
  let statistics = [Statistic<"numCopies", "copies", "Copies inserted">,
                    Statistic<"numAvoided", "copies-avoided",
                              "Results that a command writes where they belong">];
}

#endif // TRAINC_TRANSFORMS_MEMORY_PASSES
