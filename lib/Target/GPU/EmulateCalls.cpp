//===- EmulateCalls.cpp - NVVM's intrinsics as calls of the emulator ------===//
#include "Emulation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;
using namespace trainc;

namespace {
/// Replaces one call. Methods return the value that takes its place, or null if
/// they do not know the intrinsic; `done` is set where there is no value.
struct CallReplacer {
  Emulation &emulation;
  CallInst *call;
  StringRef name; // without llvm.nvvm.
  IRBuilder<> builder;
  bool done = false;

  CallReplacer(Emulation &emulation, CallInst *call, StringRef name)
      : emulation(emulation), call(call), name(name), builder(call) {}

  Value *run(StringRef function, ArrayRef<Value *> arguments) {
    done = true;
    return builder.CreateCall(emulation.getFunction(function), arguments);
  }
  Value *operand(unsigned i) { return call->getArgOperand(i); }
  Value *number(uint32_t value) { return builder.getInt32(value); }
  Value *generic(Value *pointer) {
    return builder.CreateAddrSpaceCast(pointer, builder.getPtrTy());
  }
  Value *pair(Value *wide, Type *first);
  Value *stackWords(unsigned count);

  Value *special();
  Value *barrier();
  Value *shuffle();
  Value *warp();
  Value *matrix();
  Value *copyAsync();
  Value *arithmetic();
  Value *replace();
};
} // namespace

/// What the emulator returns in 64 bits as NVVM's struct of a value and an i1.
Value *CallReplacer::pair(Value *wide, Type *first) {
  Value *value = builder.CreateTrunc(wide, builder.getInt32Ty());
  if (first->isFloatTy())
    value = builder.CreateBitCast(value, first);
  Value *bit =
      builder.CreateTrunc(builder.CreateLShr(wide, 32), builder.getInt1Ty());
  Value *result = PoisonValue::get(call->getType());
  result = builder.CreateInsertValue(result, value, 0);
  return builder.CreateInsertValue(result, bit, 1);
}

/// Memory of the thread, made once per execution of the function.
Value *CallReplacer::stackWords(unsigned count) {
  BasicBlock &entry = call->getFunction()->getEntryBlock();
  IRBuilder<> top(&entry, entry.begin());
  return top.CreateAlloca(ArrayType::get(top.getInt32Ty(), count));
}

Value *CallReplacer::special() {
  StringRef reg = name;
  if (!reg.consume_front("read.ptx.sreg."))
    return nullptr;
  int64_t found = StringSwitch<int64_t>(reg)
#define TRAINC_EMU_SPECIAL(NAME, number, text) .Case(text, number)
#include "trainc/Target/GPU/emulator_abi.def"
                      .Default(-1);
  return found < 0 ? nullptr : run("special", {number(found)});
}

Value *CallReplacer::barrier() {
  auto *number =
      call->arg_empty() ? nullptr : dyn_cast<ConstantInt>(operand(0));
  if (name == "barrier.cta.sync.aligned.all" && number && number->isZero())
    run("barrier", {});
  return nullptr;
}

Value *CallReplacer::shuffle() {
  StringRef type = name;
  if (!type.consume_front("shfl.sync.bfly."))
    return nullptr;
  Type *first = operand(1)->getType();
  Value *value = operand(1);
  if (first->isFloatTy())
    value = builder.CreateBitCast(value, builder.getInt32Ty());
  Value *wide = run("shuffle", {operand(0), value, operand(2), operand(3)});
  if (type.ends_with("p"))
    return pair(wide, first);
  Value *result = builder.CreateTrunc(wide, builder.getInt32Ty());
  return first->isFloatTy() ? builder.CreateBitCast(result, first) : result;
}

Value *CallReplacer::warp() {
  if (name == "bar.warp.sync")
    run("warp_sync", {operand(0)});
  return nullptr;
}

/// ldmatrix and mma: words go through the thread's memory.
Value *CallReplacer::matrix() {
  StringRef rest = name;
  Type *type = call->getType();
  auto results = [&](Value *words, unsigned first) {
    auto *record = dyn_cast<StructType>(type);
    auto load = [&](Type *element, unsigned i) {
      return builder.CreateLoad(
          element,
          builder.CreateConstGEP1_64(builder.getInt32Ty(), words, first + i));
    };
    if (!record)
      return static_cast<Value *>(load(type, 0));
    Value *result = PoisonValue::get(type);
    for (unsigned i = 0; i < record->getNumElements(); ++i)
      result = builder.CreateInsertValue(result,
                                         load(record->getElementType(i), i), i);
    return result;
  };
  if (rest.consume_front("ldmatrix.sync.aligned.m8n8.x")) {
    unsigned matrices = 0;
    if (rest.consumeInteger(10, matrices))
      return nullptr;
    bool transposed = rest.consume_front(".trans");
    if (!rest.starts_with(".b16"))
      return nullptr;
    Value *words = stackWords(4);
    run("ldmatrix",
        {generic(operand(0)), number(matrices), number(transposed), words});
    return results(words, 0);
  }
  if (!rest.consume_front("mma."))
    return nullptr;
  int kind = StringSwitch<int>(rest)
#define TRAINC_EMU_MMA(NAME, number, text) .Case(text, number)
#include "trainc/Target/GPU/emulator_abi.def"
                 .Default(-1);
  if (kind < 0)
    return nullptr;
  Value *words = stackWords(call->arg_size());
  for (unsigned i = 0; i < call->arg_size(); ++i)
    builder.CreateStore(
        operand(i), builder.CreateConstGEP1_64(builder.getInt32Ty(), words, i));
  run("mma", {number(kind), words});
  return results(words, call->arg_size() - 4);
}

Value *CallReplacer::copyAsync() {
  StringRef rest = name;
  if (!rest.consume_front("cp.async."))
    return nullptr;
  if (rest == "commit.group") {
    run("cp_async_commit", {});
  } else if (rest == "wait.group") {
    run("cp_async_wait", {operand(0)});
  } else if (rest == "wait.all") {
    run("cp_async_wait", {number(~0u)});
  } else if (rest.consume_front("ca.shared.global.") ||
             rest.consume_front("cg.shared.global.")) {
    bool partial = rest.consume_back(".s");
    unsigned bytes = 0;
    if (rest.getAsInteger(10, bytes) || bytes != 16)
      return nullptr;
    run("cp_async", {generic(operand(0)), generic(operand(1)), number(bytes),
                     partial ? operand(2) : number(bytes)});
  }
  return nullptr;
}

/// Arithmetic of f32 and f64, exact where the GPU approximates. Flushing of small
/// numbers to zero (ftz) is not emulated.
Value *CallReplacer::arithmetic() {
  if (name == "ff2bf16x2.rn") {
    Value *result = PoisonValue::get(call->getType());
    for (unsigned i = 0; i < 2; ++i) // the first operand is the upper half
      result = builder.CreateInsertElement(
          result, builder.CreateFPTrunc(operand(i), builder.getBFloatTy()),
          1 - i);
    return result;
  }
  if (name == "f2bf16.rn")
    return builder.CreateFPTrunc(operand(0), call->getType());
  Type *type = call->getType();
  if (!type->isFloatTy() && !type->isDoubleTy())
    return nullptr;
  if (name.starts_with("rcp."))
    return name.starts_with("rcp.rn") || name.starts_with("rcp.approx")
               ? builder.CreateFDiv(ConstantFP::get(type, 1), operand(0))
               : nullptr;
  SmallVector<StringRef> parts;
  name.split(parts, '.');
  // The name, and what is known not to matter.
  for (StringRef part : drop_begin(parts))
    if (!is_contained({"approx", "rn", "ftz", "f", "d", "f32", "f64"}, part))
      return nullptr;
  StringRef plain =
      StringSwitch<StringRef>(parts[0])
          .Case("ex2", "exp2")
          .Case("lg2", "log2")
          .Cases({"rsqrt", "sqrt", "sin", "cos", "tanh", "fma"}, parts[0])
          .Cases({"fmin", "fmax", "fabs", "floor", "ceil"}, parts[0])
          .Cases({"trunc"}, parts[0])
          .Default("");
  if (plain.empty())
    return nullptr;
  FunctionCallee math =
      emulation.findMath((plain + (type->isFloatTy() ? "f" : "")).str());
  SmallVector<Value *> arguments(call->args());
  return math ? builder.CreateCall(math, arguments) : nullptr;
}

Value *CallReplacer::replace() {
  if (name == "membar.gl" || name == "membar.sys") {
    run("fence", {});
    return nullptr;
  }
  if (name == "membar.cta" || name == "nanosleep") {
    done = true; // barriers order the same, and nobody sleeps
    return nullptr;
  }
  using Method = Value *(CallReplacer::*)();
  for (Method method :
       {&CallReplacer::special, &CallReplacer::barrier, &CallReplacer::shuffle,
        &CallReplacer::warp, &CallReplacer::matrix, &CallReplacer::copyAsync,
        &CallReplacer::arithmetic}) {
    Value *value = (this->*method)();
    if (value || done)
      return value;
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Other calls
//===----------------------------------------------------------------------===//

/// LLVM's intrinsics for which the host has instructions, or which need none.
static bool isInline(Intrinsic::ID id) {
  switch (id) {
  case Intrinsic::abs:
  case Intrinsic::assume:
  case Intrinsic::bitreverse:
  case Intrinsic::bswap:
  case Intrinsic::canonicalize:
  case Intrinsic::ceil:
  case Intrinsic::copysign:
  case Intrinsic::ctlz:
  case Intrinsic::ctpop:
  case Intrinsic::cttz:
  case Intrinsic::dbg_declare:
  case Intrinsic::dbg_label:
  case Intrinsic::dbg_value:
  case Intrinsic::expect:
  case Intrinsic::fabs:
  case Intrinsic::floor:
  case Intrinsic::fma:
  case Intrinsic::fmuladd:
  case Intrinsic::fptosi_sat:
  case Intrinsic::fptoui_sat:
  case Intrinsic::fshl:
  case Intrinsic::fshr:
  case Intrinsic::invariant_end:
  case Intrinsic::invariant_start:
  case Intrinsic::is_fpclass:
  case Intrinsic::lifetime_end:
  case Intrinsic::lifetime_start:
  case Intrinsic::masked_gather:
  case Intrinsic::masked_load:
  case Intrinsic::masked_scatter:
  case Intrinsic::masked_store:
  case Intrinsic::maximum:
  case Intrinsic::maxnum:
  case Intrinsic::minimum:
  case Intrinsic::minnum:
  case Intrinsic::nearbyint:
  case Intrinsic::rint:
  case Intrinsic::roundeven:
  case Intrinsic::sadd_sat:
  case Intrinsic::sadd_with_overflow:
  case Intrinsic::smax:
  case Intrinsic::smin:
  case Intrinsic::smul_with_overflow:
  case Intrinsic::sqrt:
  case Intrinsic::ssub_sat:
  case Intrinsic::ssub_with_overflow:
  case Intrinsic::trunc:
  case Intrinsic::uadd_sat:
  case Intrinsic::uadd_with_overflow:
  case Intrinsic::umax:
  case Intrinsic::umin:
  case Intrinsic::umul_with_overflow:
  case Intrinsic::usub_sat:
  case Intrinsic::usub_with_overflow:
  case Intrinsic::vector_reduce_add:
  case Intrinsic::vector_reduce_and:
  case Intrinsic::vector_reduce_fadd:
  case Intrinsic::vector_reduce_fmax:
  case Intrinsic::vector_reduce_fmaximum:
  case Intrinsic::vector_reduce_fmin:
  case Intrinsic::vector_reduce_fminimum:
  case Intrinsic::vector_reduce_fmul:
  case Intrinsic::vector_reduce_mul:
  case Intrinsic::vector_reduce_or:
  case Intrinsic::vector_reduce_smax:
  case Intrinsic::vector_reduce_smin:
  case Intrinsic::vector_reduce_umax:
  case Intrinsic::vector_reduce_umin:
  case Intrinsic::vector_reduce_xor:
    return true;
  default:
    return false;
  }
}

/// The function of libm that a call is, or null: one of libdevice, or an intrinsic
/// such as llvm.exp.f32.
static FunctionCallee mathOf(Emulation &emulation, Function *callee) {
  StringRef name = callee->getName();
  if (name.consume_front("__nv_")) {
    name.consume_front("fast_");
    return emulation.findMath(name);
  }
  if (!name.consume_front("llvm."))
    return {};
  if (name.consume_back(".f32"))
    return emulation.findMath((name + "f").str());
  return name.consume_back(".f64") ? emulation.findMath(name)
                                   : FunctionCallee();
}

static LogicalResult replaceCall(Emulation &emulation, CallInst *call) {
  if (call->isInlineAsm())
    return emulation.refuse(
        "the emulator does not know inline PTX '" +
        cast<InlineAsm>(call->getCalledOperand())->getAsmString() + "'");
  Function *callee = call->getCalledFunction();
  if (!callee)
    return emulation.refuse("the emulator does not know calls of pointers, in "
                            "function '" +
                            call->getFunction()->getName() + "'");
  if (!callee->isDeclaration())
    return success();
  StringRef name = callee->getName();
  if (name.starts_with("trainc_emu_"))
    return success();
  bool intrinsic = callee->isIntrinsic();
  if (intrinsic && isInline(callee->getIntrinsicID()))
    return success();

  Value *value = nullptr;
  bool done = false;
  if (name.starts_with("llvm.nvvm.")) {
    CallReplacer replacer(emulation, call,
                          name.drop_front(strlen("llvm.nvvm.")));
    value = replacer.replace();
    done = replacer.done || value;
  } else if (FunctionCallee math = mathOf(emulation, callee);
             math && math.getFunctionType() == callee->getFunctionType()) {
    SmallVector<Value *> arguments(call->args());
    value = IRBuilder<>(call).CreateCall(math, arguments);
    done = true;
  }
  if (!done)
    return emulation.refuse("the emulator does not know " +
                            Twine(intrinsic ? "intrinsic" : "function") + " '" +
                            name + "'");
  if (value)
    call->replaceAllUsesWith(value);
  call->eraseFromParent();
  return success();
}

LogicalResult Emulation::replaceCalls() {
  SmallVector<CallInst *> calls;
  SmallVector<BinaryOperator *> remainders;
  for (Function &function : module)
    for (Instruction &instruction : instructions(function)) {
      if (auto *call = dyn_cast<CallInst>(&instruction))
        calls.push_back(call);
      else if (instruction.getOpcode() == Instruction::FRem)
        remainders.push_back(cast<BinaryOperator>(&instruction));
    }
  for (CallInst *call : calls)
    if (failed(replaceCall(*this, call)))
      return failure();
  // The host would call libm by itself.
  for (BinaryOperator *remainder : remainders) {
    Type *type = remainder->getType();
    if (!type->isFloatTy() && !type->isDoubleTy())
      return refuse("the emulator knows remainders of f32 and f64 only");
    Value *value = IRBuilder<>(remainder).CreateCall(
        findMath(type->isFloatTy() ? "fmodf" : "fmod"),
        {remainder->getOperand(0), remainder->getOperand(1)});
    remainder->replaceAllUsesWith(value);
    remainder->eraseFromParent();
  }
  return success();
}
