//===- Passes.td - The contract between phases -*- tablegen -*------------===//
#ifndef TRAINC_TRANSFORMS_VERIFY_PASSES
#define TRAINC_TRANSFORMS_VERIFY_PASSES

include "mlir/Pass/PassBase.td"

def VerifyFormPass : Pass<"train-verify-form", "::mlir::ModuleOp"> {
  let summary = "Check that a module is in a form";
  let description = [{
    The pipeline begins, and each of its phases ends, with this pass. It changes nothing.

    * Form 0: parameters, buffers, optimizers, schedules, entries and functions; in
      entries and functions `nn` operations, reads and writes of parameters and buffers,
      recomputed regions and calls.
    * Form 1: no calls or functions, optimizers and schedules are regions, and each
      parameter that is not frozen has one stored gradient.
    * Form 2: storage is named by slices; one `train.window_end` separates micro-step and
      update, which for windows of more than one is a conditional region.
    * Form 3: lists hold addresses, views, and launches, GEMMs, copies, flat tensors and
      collectives in the buffer form only; a step's commands write what it trains.
      Commands that the runtime may run at once, which it tells by the bytes of their
      operands alone, do not conflict: (P1) what stands in the workspace ends within it, and
      nothing writes to an input; (P2) what is read was written through the same address, and
      nothing over it since, or stands in an arena or input as the list found it, and all of
      every output is written; (P3) what a command writes shares no byte with what else it
      touches; (P4) from the start of a collective to its end nothing writes what it reads or
      touches what it writes; (P5) what is in flight, at most TRAINC_MAX_IN_FLIGHT
      collectives, is waited for once, in its list or in the next, at once or in the order of
      the starts.
    * Form 4 of a processor, before it is LLVM's: no function of several workgroups writes
      to an argument in the same way in all of them.

    Runs after `train-differentiate`, `train-shard`, `train-defer-gather` and
    `train-lower-kernels`: it checks what these give to the next phase.

    Example: test/Transforms/Verify/verify-form.mlir
  }];
  let options = [Option<"form", "form", "int64_t", "1", "The form: 0, 1, 2, 3 or 4">];
}

#endif // TRAINC_TRANSFORMS_VERIFY_PASSES
