//===- Threads.cpp - Code of a thread of a GPU ----------------------------===//
#include "Threads.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace trainc;

/// NVVM's number of the address space of a block's memory.
static constexpr int64_t kSharedSpace = 3;

int64_t trainc::chooseLanes(const KernelFunction &function,
                            const IterationSpace &space, bool dividing) {
  constexpr int64_t accessBytes = 16, mostLanes = 8;
  int64_t narrowest = accessBytes;
  auto visit = [&](Value value) {
    if (space.extentOf(value).inner)
      narrowest = std::min<int64_t>(
          narrowest, nn::getElementBytes(getStorageType(
                         nn::getTensorType(value).getElementType())));
  };
  for (auto [value, memref] : function.inputs)
    visit(value);
  for (auto &[value, memrefs] : function.outputs)
    visit(value);
  int64_t lanes = std::min(accessBytes / narrowest, mostLanes);
  while (dividing && space.inner % lanes != 0)
    lanes /= 2;
  return lanes;
}

void ThreadBuilder::setLaunch(KernelFunction &function, int64_t resident) {
  function.function->setAttr("threads", b.getI64IntegerAttr(threads));
  if (resident)
    function.function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                               b.getI32IntegerAttr(resident));
}

Value ThreadBuilder::thread() {
  return gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x);
}

void ThreadBuilder::barrier() { gpu::BarrierOp::create(b, loc); }

Value ThreadBuilder::less(Value x, Value y) {
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x, y);
}

void ThreadBuilder::when(Value condition,
                         function_ref<void(ThreadBuilder &)> body) {
  auto branch = scf::IfOp::create(b, loc, condition, /*withElse=*/false);
  OpBuilder inner = branch.getThenBodyBuilder();
  ThreadBuilder t(inner, loc, threads);
  body(t);
}

Value ThreadBuilder::shuffle(Value value, int64_t mask) {
  Type type = value.getType(), i32 = b.getI32Type();
  unsigned width = type.getIntOrFloatBitWidth();
  auto exchange = [&](Value word) -> Value {
    Value offset = arith::ConstantIntOp::create(b, loc, mask, 32);
    Value all = arith::ConstantIntOp::create(b, loc, kWarp, 32);
    return gpu::ShuffleOp::create(b, loc, word, offset, all,
                                  gpu::ShuffleMode::XOR)
        .getShuffleResult();
  };
  if (width == 32)
    return exchange(value);
  Type integer = b.getIntegerType(width);
  if (isa<FloatType>(type))
    value = arith::BitcastOp::create(b, loc, integer, value);
  if (width < 32) {
    value = exchange(arith::ExtUIOp::create(b, loc, i32, value));
    value = arith::TruncIOp::create(b, loc, integer, value);
  } else {
    Value half = arith::ConstantIntOp::create(b, loc, 32, 64);
    Value high = arith::ShRUIOp::create(b, loc, value, half);
    auto word = [&](Value part) -> Value {
      part = exchange(arith::TruncIOp::create(b, loc, i32, part));
      return arith::ExtUIOp::create(b, loc, integer, part);
    };
    Value low = word(value);
    high = arith::ShLIOp::create(b, loc, word(high), half);
    value = arith::OrIOp::create(b, loc, low, high);
  }
  if (isa<FloatType>(type))
    value = arith::BitcastOp::create(b, loc, type, value);
  return value;
}

Value ThreadBuilder::combineThreads(nn::ReduceKind kind, Value value,
                                    int64_t count) {
  for (int64_t mask = count / 2; mask > 0; mask /= 2)
    value = combine(kind, value, shuffle(value, mask));
  return value;
}

Value ThreadBuilder::shared(Type element, int64_t count) {
  auto module =
      b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  auto type = MemRefType::get({count}, element, MemRefLayoutAttrInterface(),
                              b.getI64IntegerAttr(kSharedSpace));
  std::string name;
  for (unsigned i = 0; name.empty() || module.lookupSymbol(name); ++i)
    name = "shared_" + std::to_string(i);
  OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
  memref::GlobalOp::create(top, loc, name, top.getStringAttr("private"), type,
                           top.getUnitAttr(), /*constant=*/false,
                           top.getI64IntegerAttr(16));
  return memref::GetGlobalOp::create(b, loc, type, name);
}

Value ThreadBuilder::combineBlock(nn::ReduceKind kind, Value value) {
  value = combineThreads(kind, value);
  int64_t warps = threads / kWarp;
  if (warps == 1)
    return value;
  // The warps' results, which each warp combines again. The memory is of this
  // reduction alone: nothing waits until it is read.
  Value parts = shared(value.getType(), warps), id = thread();
  Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                      mod(id, kWarp), index(0));
  when(first, [&](ThreadBuilder &t) {
    memref::StoreOp::create(t.b, loc, value, parts,
                            ValueRange(t.div(id, kWarp)));
  });
  barrier();
  value = memref::LoadOp::create(b, loc, parts, ValueRange(mod(id, warps)));
  return combineThreads(kind, value, warps);
}

//===----------------------------------------------------------------------===//
// Among blocks
//===----------------------------------------------------------------------===//

/// The counters, which come before anything else that blocks share.
static Value getCounters(LoopBuilder &l, KernelFunction &function) {
  if (!function.function->hasAttr("scratch"))
    return function.allocateScratch(l, l.b.getI32Type(), kCounters);
  BlockArgument scratch =
      function.function.getArgument(function.function.getNumArguments() - 2);
  return memref::ViewOp::create(l.b, l.loc,
                                MemRefType::get({kCounters}, l.b.getI32Type()),
                                scratch, l.index(0), ValueRange());
}

Value ThreadBuilder::shareAmongBlocks(KernelFunction &function, Type element,
                                      int64_t count) {
  getCounters(*this, function);
  return function.allocateScratch(*this, element, count);
}

/// Orders what the block's threads did before the last barrier and what they do behind
/// the next one around an atomic of this thread: atomics of GPUs order nothing.
static void fenceDevice(ThreadBuilder &t) {
  LLVM::FenceOp::create(t.b, t.loc, LLVM::AtomicOrdering::acq_rel, "device");
}

void ThreadBuilder::whenLast(KernelFunction &function, Value number,
                             int64_t count,
                             function_ref<void(ThreadBuilder &)> body) {
  Type i32 = b.getI32Type();
  Value counters = getCounters(*this, function), before = shared(i32, 1);
  Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                      thread(), index(0));
  // All of the block has written before its first thread counts it. The fences order
  // what blocks write before the addition and what the last one reads behind it.
  barrier();
  when(first, [&](ThreadBuilder &t) {
    fenceDevice(t);
    Value one = arith::ConstantIntOp::create(t.b, loc, 1, 32);
    Value arrived =
        memref::AtomicRMWOp::create(t.b, loc, arith::AtomicRMWKind::addi, one,
                                    counters, ValueRange(number));
    fenceDevice(t);
    memref::StoreOp::create(t.b, loc, arrived, before, ValueRange(t.index(0)));
  });
  barrier();
  Value arrived = memref::LoadOp::create(b, loc, before, ValueRange(index(0)));
  Value last = arith::ConstantIntOp::create(b, loc, count - 1, 32);
  when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, arrived, last),
       [&](ThreadBuilder &t) {
         body(t);
         t.when(first, [&](ThreadBuilder &t) {
           Value zero = arith::ConstantIntOp::create(t.b, loc, 0, 32);
           memref::StoreOp::create(t.b, loc, zero, counters,
                                   ValueRange(number));
         });
       });
}
