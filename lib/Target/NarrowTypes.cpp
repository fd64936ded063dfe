//===- NarrowTypes.cpp - bf16 and f16 as integers -------------------------===//
//
// Where a processor lacks an instruction for bf16 or f16, LLVM takes vectors apart and
// calls functions of the compiler's library, which artifacts do not have. So before a
// module is optimized its numbers of these types become their bits, integers of 16:
// on every processor, that all give equal bits. Arithmetic is f32's, rounded. All
// rounding is to nearest even, once, denormals kept, as in runtime/src/core/convert.h;
// the instructions that convert to bf16 take denormals as zero and are not used. Between f16
// and f32 instructions convert (F16C), which LLVM finds by itself.
//
//===----------------------------------------------------------------------===//
#include "trainc/Target/Object.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Analysis/ConstantFolding.h"
#include "llvm/CodeGen/AtomicExpandUtils.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"

using namespace llvm;

/// Whether `type` is bf16 or f16, or a vector of one.
static bool isNarrow(Type *type) {
  return type->getScalarType()->isBFloatTy() ||
         type->getScalarType()->isHalfTy();
}

/// `type` with integers of 16 bits in place of bf16 and f16.
static Type *bitsOf(Type *type) {
  if (isNarrow(type))
    return type->getWithNewType(Type::getInt16Ty(type->getContext()));
  if (auto *array = dyn_cast<ArrayType>(type))
    return ArrayType::get(bitsOf(array->getElementType()),
                          array->getNumElements());
  if (auto *record = dyn_cast<StructType>(type);
      record && record->isLiteral()) {
    SmallVector<Type *> elements;
    for (Type *element : record->elements())
      elements.push_back(bitsOf(element));
    return StructType::get(type->getContext(), elements, record->isPacked());
  }
  return type;
}

static Constant *bitsOf(Constant *constant, const DataLayout &layout) {
  Type *type = constant->getType(), *bits = bitsOf(type);
  if (bits == type)
    return constant;
  if (isNarrow(type))
    return ConstantFoldCastOperand(Instruction::BitCast, constant, bits,
                                   layout);
  if (isa<PoisonValue>(constant))
    return PoisonValue::get(bits);
  if (isa<UndefValue>(constant))
    return UndefValue::get(bits);
  SmallVector<Constant *> elements;
  unsigned count = isa<ArrayType>(type) ? type->getArrayNumElements()
                                        : type->getStructNumElements();
  for (unsigned i = 0; i < count; ++i)
    elements.push_back(bitsOf(constant->getAggregateElement(i), layout));
  if (auto *array = dyn_cast<ArrayType>(bits))
    return ConstantArray::get(array, elements);
  return ConstantStruct::get(cast<StructType>(bits), elements);
}

//===----------------------------------------------------------------------===//
// Conversions
//===----------------------------------------------------------------------===//

namespace {
/// Builds conversions between bits and numbers, of scalars or vectors.
struct Conversions {
  IRBuilder<> &b;

  Type *typeOf(Value *like, Type *element) {
    return like->getType()->getWithNewType(element);
  }
  Value *cast(Value *value, Type *element) {
    return b.CreateBitCast(value, typeOf(value, element));
  }
  Constant *word(Value *like, uint32_t value) {
    return ConstantInt::get(like->getType(), value);
  }

  Value *toF32(Value *bits, Type *narrow);
  Value *toBF16(Value *f32);
  Value *toOdd(Value *f64);
  Value *fromF32(Value *f32, Type *narrow);
  Value *fromF64(Value *f64, Type *narrow);
};
} // namespace

Value *Conversions::toF32(Value *bits, Type *narrow) {
  if (narrow->isHalfTy())
    return b.CreateFPExt(cast(bits, narrow), typeOf(bits, b.getFloatTy()));
  Value *wide = b.CreateZExt(bits, typeOf(bits, b.getInt32Ty()));
  return cast(b.CreateShl(wide, 16), b.getFloatTy());
}

Value *Conversions::toBF16(Value *f32) {
  Value *bits = cast(f32, b.getInt32Ty());
  Value *upper = b.CreateLShr(bits, 16);
  Value *odd = b.CreateAnd(upper, word(bits, 1));
  Value *rounded =
      b.CreateLShr(b.CreateAdd(b.CreateAdd(bits, word(bits, 0x7FFF)), odd), 16);
  Value *nan = b.CreateOr(upper, word(bits, 0x40));
  Value *result = b.CreateSelect(b.CreateFCmpUNO(f32, f32), nan, rounded);
  return b.CreateTrunc(result, typeOf(bits, b.getInt16Ty()));
}

/// The f32 next to an f64 towards zero, or away from it, whose last bit is 1 (or f32
/// equal to it): rounding that again gives what rounding the f64 once would.
Value *Conversions::toOdd(Value *f64) {
  Value *nearest = b.CreateFPTrunc(f64, typeOf(f64, b.getFloatTy()));
  Value *back = b.CreateFPExt(nearest, f64->getType());
  Value *bits = cast(nearest, b.getInt32Ty());
  auto magnitude = [&](Value *value) {
    return b.CreateUnaryIntrinsic(Intrinsic::fabs, value);
  };
  Value *above = b.CreateFCmpOGT(magnitude(back), magnitude(f64));
  Value *below = b.CreateSub(bits, b.CreateZExt(above, bits->getType()));
  Value *odd = b.CreateOr(below, word(bits, 1));
  Value *inexact = b.CreateFCmpONE(back, f64);
  return cast(b.CreateSelect(inexact, odd, bits), b.getFloatTy());
}

Value *Conversions::fromF32(Value *f32, Type *narrow) {
  if (narrow->isBFloatTy())
    return toBF16(f32);
  return cast(b.CreateFPTrunc(f32, typeOf(f32, narrow)), b.getInt16Ty());
}

Value *Conversions::fromF64(Value *f64, Type *narrow) {
  return fromF32(toOdd(f64), narrow);
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

namespace {
/// An instruction that computes with narrow numbers, and the types that it had.
struct Computation {
  Instruction *instruction;
  /// Of an element of the result and of each operand.
  Type *to;
  SmallVector<Type *, 3> operands;
};
} // namespace

/// Whether `instruction` only moves what it is given.
static bool moves(const Instruction &instruction) {
  if (const auto *call = dyn_cast<IntrinsicInst>(&instruction))
    switch (call->getIntrinsicID()) {
    case Intrinsic::masked_load:
    case Intrinsic::masked_store:
    case Intrinsic::masked_gather:
    case Intrinsic::masked_scatter:
    case Intrinsic::masked_expandload:
    case Intrinsic::masked_compressstore:
    case Intrinsic::vector_insert:
    case Intrinsic::vector_extract:
    case Intrinsic::vector_interleave2:
    case Intrinsic::vector_deinterleave2:
      return true;
    default:
      return false;
    }
  return isa<LoadInst, StoreInst, PHINode, SelectInst, FreezeInst, BitCastInst,
             ExtractElementInst, InsertElementInst, ShuffleVectorInst,
             ExtractValueInst, InsertValueInst, ReturnInst>(instruction) ||
         (isa<AtomicRMWInst>(instruction) &&
          !cast<AtomicRMWInst>(instruction).isFloatingPointOperation());
}

static bool hasNarrow(Type *type) { return bitsOf(type) != type; }

static bool hasNarrow(const Instruction &instruction) {
  return hasNarrow(instruction.getType()) ||
         any_of(instruction.operands(), [](const Use &operand) {
           return hasNarrow(operand->getType());
         });
}

/// Whether a test of f32 tells what this one of bf16 or f16 does: a denormal f16 is a
/// normal f32, and F16C makes every NaN quiet.
static bool isClassKept(const IntrinsicInst &test) {
  unsigned mask = cast<ConstantInt>(test.getArgOperand(1))->getZExtValue();
  auto equal = [&](unsigned x, unsigned y) {
    return !(mask & x) == !(mask & y);
  };
  return equal(fcSNan, fcQNan) && equal(fcPosNormal, fcPosSubnormal) &&
         equal(fcNegNormal, fcNegSubnormal);
}

/// The result of an intrinsic, whose narrow operands are of f32 by now.
static Value *computeCall(IntrinsicInst &call, ArrayRef<Value *> operands,
                          Type *to, Conversions &convert) {
  if (call.getType()->isStructTy() ||
      (call.getIntrinsicID() == Intrinsic::is_fpclass && !isClassKept(call)))
    return nullptr;
  bool narrow = isNarrow(to);
  Type *type = narrow ? call.getType()->getWithNewType(convert.b.getFloatTy())
                      : call.getType();
  SmallVector<Type *> arguments, overloads;
  for (Value *operand : operands)
    arguments.push_back(operand->getType());
  if (!Intrinsic::getIntrinsicSignature(
          call.getIntrinsicID(),
          FunctionType::get(type, arguments, /*isVarArg=*/false), overloads))
    return nullptr;
  Value *result =
      convert.b.CreateIntrinsic(call.getIntrinsicID(), overloads, operands);
  return narrow ? convert.fromF32(result, to) : result;
}

/// What takes the place of a computation, whose operands are bits by now; null if
/// that is not known.
static Value *compute(const Computation &computation) {
  Instruction *old = computation.instruction;
  IRBuilder<> builder(old);
  Conversions convert{builder};
  Type *to = computation.to;
  SmallVector<Value *> operands;
  unsigned count = isa<CallInst>(old) ? cast<CallInst>(old)->arg_size()
                                      : old->getNumOperands();
  for (unsigned i = 0; i < count; ++i) {
    Value *operand = old->getOperand(i);
    Type *narrow = computation.operands[i];
    operands.push_back(isNarrow(narrow) ? convert.toF32(operand, narrow)
                                        : operand);
  }
  if (auto *compare = dyn_cast<FCmpInst>(old))
    return builder.CreateFCmpFMF(compare->getPredicate(), operands[0],
                                 operands[1], compare);
  if (isa<FPExtInst>(old)) {
    return to->isFloatTy() ? operands[0]
                           : builder.CreateFPExt(operands[0], old->getType());
  }
  if (isa<FPTruncInst>(old))
    return computation.operands[0]->isDoubleTy()
               ? convert.fromF64(operands[0], to)
               : convert.fromF32(operands[0], to);
  if (isa<FPToSIInst, FPToUIInst>(old))
    return builder.CreateCast(cast<CastInst>(old)->getOpcode(), operands[0],
                              old->getType());
  if (isa<SIToFPInst, UIToFPInst>(old)) {
    Type *wide = convert.typeOf(operands[0], builder.getFloatTy());
    return convert.fromF32(
        builder.CreateCast(cast<CastInst>(old)->getOpcode(), operands[0], wide),
        to);
  }
  if (isa<UnaryOperator>(old))
    return convert.fromF32(builder.CreateFNeg(operands[0]), to);
  if (auto *binary = dyn_cast<BinaryOperator>(old))
    return convert.fromF32(
        builder.CreateBinOp(binary->getOpcode(), operands[0], operands[1]), to);
  if (auto *call = dyn_cast<IntrinsicInst>(old))
    return computeCall(*call, operands, to, convert);
  return nullptr;
}

/// Makes a loop of a change of memory that computes with narrow numbers.
static void expandAtomic(AtomicRMWInst *update) {
  auto exchange = [](IRBuilderBase &b, Value *address, Value *loaded,
                     Value *value, Align align, AtomicOrdering order,
                     SyncScope::ID scope, Value *&success, Value *&found,
                     Instruction *) {
    Type *type = loaded->getType();
    AtomicCmpXchgInst *pair = b.CreateAtomicCmpXchg(
        address, b.CreateBitCast(loaded, b.getInt16Ty()),
        b.CreateBitCast(value, b.getInt16Ty()), align, order,
        AtomicCmpXchgInst::getStrongestFailureOrdering(order), scope);
    success = b.CreateExtractValue(pair, 1);
    found = b.CreateBitCast(b.CreateExtractValue(pair, 0), type);
  };
  expandAtomicRMWToCmpXchg(update, exchange);
}

static LogicalResult failWith(std::string &error, const Instruction &at) {
  const auto *call = dyn_cast<CallInst>(&at);
  const Function *callee = call ? call->getCalledFunction() : nullptr;
  error = ("function '" + at.getFunction()->getName() + "' computes '" +
           (callee ? callee->getName() : at.getOpcodeName()) +
           "' of bf16 or f16, for which there is no code")
              .str();
  return failure();
}

/// Lets intrinsics that move narrow numbers move integers.
static LogicalResult redeclare(IntrinsicInst &call, std::string &error) {
  SmallVector<Type *> arguments, overloads;
  for (Value *argument : call.args())
    arguments.push_back(argument->getType());
  auto *type = FunctionType::get(call.getType(), arguments, /*isVarArg=*/false);
  if (!Intrinsic::getIntrinsicSignature(call.getIntrinsicID(), type, overloads))
    return failWith(error, call);
  call.setCalledFunction(Intrinsic::getOrInsertDeclaration(
      call.getModule(), call.getIntrinsicID(), overloads));
  return success();
}

static LogicalResult replaceIn(Function &function, std::string &error) {
  SmallVector<AtomicRMWInst *> atomics;
  for (Instruction &instruction : instructions(function))
    if (auto *update = dyn_cast<AtomicRMWInst>(&instruction);
        update && hasNarrow(update->getType()) && !moves(*update))
      atomics.push_back(update);
  for (AtomicRMWInst *update : atomics)
    expandAtomic(update);

  // First all values become bits; then, from these, what computes is built anew.
  SmallVector<Computation> computations;
  SmallVector<IntrinsicInst *> intrinsics;
  SmallVector<Instruction *> changed;
  for (Instruction &instruction : instructions(function)) {
    if (auto *stack = dyn_cast<AllocaInst>(&instruction))
      stack->setAllocatedType(bitsOf(stack->getAllocatedType()));
    if (auto *address = dyn_cast<GetElementPtrInst>(&instruction)) {
      address->setSourceElementType(bitsOf(address->getSourceElementType()));
      address->setResultElementType(bitsOf(address->getResultElementType()));
    }
    if (!hasNarrow(instruction))
      continue;
    changed.push_back(&instruction);
    if (!moves(instruction)) {
      computations.push_back(
          {&instruction, instruction.getType()->getScalarType(), {}});
      for (Value *operand : instruction.operands())
        computations.back().operands.push_back(
            operand->getType()->getScalarType());
    } else if (auto *call = dyn_cast<IntrinsicInst>(&instruction)) {
      intrinsics.push_back(call);
    }
  }
  const DataLayout &layout = function.getDataLayout();
  for (Instruction *instruction : changed) {
    if (isa<FPMathOperator>(instruction))
      instruction->copyFastMathFlags(FastMathFlags());
    for (Use &operand : instruction->operands())
      if (auto *constant = dyn_cast<Constant>(operand);
          constant && !isa<Function>(constant))
        operand.set(bitsOf(constant, layout));
    instruction->mutateType(bitsOf(instruction->getType()));
  }
  for (IntrinsicInst *call : intrinsics)
    if (failed(redeclare(*call, error)))
      return failure();
  for (const Computation &computation : computations) {
    Instruction *old = computation.instruction;
    Value *value = compute(computation);
    if (!value)
      return failWith(error, *old);
    old->replaceAllUsesWith(value);
    value->takeName(old);
    old->eraseFromParent();
  }
  return success();
}

LogicalResult trainc::replaceNarrowTypes(Module &module, std::string &error) {
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    if (hasNarrow(function.getReturnType()) ||
        any_of(function.args(), [](const Argument &argument) {
          return hasNarrow(argument.getType());
        })) {
      error = ("expects no bf16 or f16 among arguments and results, got "
               "function '" +
               function.getName() + "'")
                  .str();
      return failure();
    }
    if (failed(replaceIn(function, error)))
      return failure();
  }
  for (Function &function : make_early_inc_range(module))
    if (function.isIntrinsic() && function.use_empty())
      function.eraseFromParent();
  return success();
}
