//===- InlineCalls.cpp - Inline every call --------------------------------===//
//
// This pass inlines the functions of a source into its entries: they are only a
// way to write a step in parts. Afterwards a module has no functions.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Transforms/Source/Passes.h"

#define DEBUG_TYPE "train-inline-calls"

namespace trainc {
#define GEN_PASS_DEF_INLINECALLSPASS
#include "trainc/Transforms/Source/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;

/// Replaces `call` by a copy of the callee's body.
static LogicalResult inlineCall(func::CallOp call, func::FuncOp callee) {
  if (!llvm::hasSingleElement(callee.getBody()))
    return (call.emitOpError("expects a callee with one block, got ")
            << callee.getBody().getBlocks().size())
               .attachNote(callee.getLoc())
           << "callee is here";
  OpBuilder builder(call);
  IRMapping mapping;
  mapping.map(callee.getArguments(), call.getOperands());
  for (Operation &op : callee.getBody().front().without_terminator())
    builder.clone(op, mapping);
  Operation *end = callee.getBody().front().getTerminator();
  for (auto [result, value] : llvm::zip(call.getResults(), end->getOperands()))
    result.replaceAllUsesWith(mapping.lookupOrDefault(value));
  call.erase();
  return success();
}

/// Operations that inlining may make of a module: calls of functions that call others
/// twice double them with each.
static constexpr int64_t kMostOperations = 1 << 18;

namespace {
struct InlineCallsPass : trainc::impl::InlineCallsPassBase<InlineCallsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    size_t depth = llvm::range_size(module.getOps<func::FuncOp>());
    int64_t made = 0;
    for (size_t round = 0; round <= depth; ++round) {
      SmallVector<func::CallOp> calls;
      for (Operation &entry : module.getOps())
        if (isa<train::StepOp, train::EvalOp>(entry))
          entry.walk([&](func::CallOp call) { calls.push_back(call); });
      if (calls.empty())
        break;
      for (func::CallOp call : calls) {
        auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
        if (!callee || callee.isExternal() || round == depth) {
          call.emitOpError(!callee || callee.isExternal()
                               ? "expects a function with a body, got '"
                               : "expects no recursion, got it in '")
              << call.getCallee() << "'";
          return signalPassFailure();
        }
        callee.walk([&](Operation *) { ++made; });
        if (made > kMostOperations) {
          call.emitOpError("expects calls that make at most ")
              << kMostOperations << " operations of the functions they call";
          return signalPassFailure();
        }
        if (failed(inlineCall(call, callee)))
          return signalPassFailure();
        ++numInlined;
      }
    }
    for (auto function :
         llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      function.erase();
  }
};
} // namespace
