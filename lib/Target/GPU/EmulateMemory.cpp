//===- EmulateMemory.cpp - Checked accesses and shared memory -------------===//
#include "Emulation.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/ReplaceConstant.h"

using namespace llvm;
using namespace trainc;

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

/// Whether a pointer is to the thread's own memory: nothing else can access it, and
/// it mostly becomes registers.
static bool isLocal(const Value *pointer) {
  const Value *object = getUnderlyingObject(pointer);
  if (const auto *argument = dyn_cast<Argument>(object))
    return argument->hasByValAttr();
  return isa<AllocaInst>(object);
}

uint32_t Emulation::siteOf(const Instruction *instruction) {
  const DebugLoc &location = instruction->getDebugLoc();
  if (!location || location.getLine() == 0)
    return 0;
  std::string text =
      (cast<DILocation>(location.get())->getFilename() + ":" +
       Twine(location.getLine()) + ":" + Twine(location.getCol()))
          .str();
  auto [entry, isNew] = siteNumbers.try_emplace(text, sites.size());
  if (isNew)
    sites.push_back(text);
  return entry->second;
}

static uint32_t flagsOf(unsigned how, Align align, const Value *pointer) {
  unsigned space = isLocal(pointer)
                       ? unsigned(TRAINC_EMU_LOCAL)
                       : pointer->getType()->getPointerAddressSpace();
  return TRAINC_EMU_FLAGS(how, std::min(Log2(align), 15u), space);
}

namespace {
/// Makes checks before one instruction.
struct Checker {
  Emulation &emulation;
  const DataLayout &layout;
  IRBuilder<> builder;
  Value *site;

  Checker(Emulation &emulation, Instruction *before)
      : emulation(emulation), layout(emulation.module.getDataLayout()),
        builder(before), site(builder.getInt32(emulation.siteOf(before))) {}

  Value *generic(Value *pointer) {
    return builder.CreateAddrSpaceCast(pointer, builder.getPtrTy());
  }
  void check(Value *pointer, Value *bytes, unsigned how, Align align) {
    if (!isLocal(pointer))
      builder.CreateCall(emulation.getFunction("access"),
                         {generic(pointer), bytes,
                          builder.getInt32(flagsOf(how, align, pointer)),
                          site});
  }
  void check(Value *pointer, Type *type, unsigned how, Align align) {
    check(pointer, builder.getInt64(layout.getTypeStoreSize(type)), how, align);
  }
  void checkLanes(Value *pointers, Value *mask, VectorType *type, unsigned how,
                  Align align);
};
} // namespace

/// Checks each lane of a masked access: 0 bytes where the mask is off. `pointers`
/// is one pointer to consecutive elements, or one per lane.
void Checker::checkLanes(Value *pointers, Value *mask, VectorType *type,
                         unsigned how, Align align) {
  Type *element = type->getElementType();
  uint64_t bytes = layout.getTypeStoreSize(element);
  unsigned lanes = cast<FixedVectorType>(type)->getNumElements();
  bool many = pointers->getType()->isVectorTy();
  for (unsigned i = 0; i < lanes; ++i) {
    Value *pointer = many ? builder.CreateExtractElement(pointers, i)
                          : builder.CreateConstGEP1_64(element, pointers, i);
    Value *count =
        builder.CreateSelect(builder.CreateExtractElement(mask, i),
                             builder.getInt64(bytes), builder.getInt64(0));
    check(pointer, count, how, commonAlignment(align, bytes));
  }
}

/// Replaces copies and fills, which may be calls of the C library otherwise.
static void replaceMemory(Emulation &emulation, MemIntrinsic *memory) {
  Checker checker(emulation, memory);
  IRBuilder<> &builder = checker.builder;
  Value *to = memory->getRawDest();
  Value *bytes =
      builder.CreateZExtOrTrunc(memory->getLength(), builder.getInt64Ty());
  uint32_t toFlags =
      flagsOf(TRAINC_EMU_WRITE, memory->getDestAlign().valueOrOne(), to);
  if (auto *fill = dyn_cast<MemSetInst>(memory)) {
    Value *byte = builder.CreateZExt(fill->getValue(), builder.getInt32Ty());
    builder.CreateCall(emulation.getFunction("fill"),
                       {checker.generic(to), byte, bytes,
                        builder.getInt32(toFlags), checker.site});
  } else {
    auto *copy = cast<MemTransferInst>(memory);
    Value *from = copy->getRawSource();
    uint32_t fromFlags =
        flagsOf(TRAINC_EMU_READ, copy->getSourceAlign().valueOrOne(), from);
    builder.CreateCall(emulation.getFunction("copy"),
                       {checker.generic(to), checker.generic(from), bytes,
                        builder.getInt32(toFlags), builder.getInt32(fromFlags),
                        checker.site});
  }
  memory->eraseFromParent();
}

/// Checks one of the intrinsics that access memory by a mask.
static void checkMasked(Emulation &emulation, IntrinsicInst *call) {
  Checker checker(emulation, call);
  auto align = [&](unsigned operand) {
    return call->getParamAlign(operand).valueOrOne();
  };
  switch (call->getIntrinsicID()) {
  case Intrinsic::masked_load:
  case Intrinsic::masked_gather:
    checker.checkLanes(call->getArgOperand(0), call->getArgOperand(1),
                       cast<VectorType>(call->getType()), TRAINC_EMU_READ,
                       align(0));
    break;
  case Intrinsic::masked_store:
  case Intrinsic::masked_scatter:
    checker.checkLanes(call->getArgOperand(1), call->getArgOperand(2),
                       cast<VectorType>(call->getArgOperand(0)->getType()),
                       TRAINC_EMU_WRITE, align(1));
    break;
  default:
    break;
  }
}

/// Tells the emulator of a fence. One of a block orders nothing that barriers do not.
static LogicalResult checkFence(Emulation &emulation, FenceInst *fence) {
  SmallVector<StringRef> scopes;
  fence->getContext().getSyncScopeNames(scopes);
  StringRef scope = scopes[fence->getSyncScopeID()];
  if (!is_contained({"", "device", "block"}, scope))
    return emulation.refuse("the emulator does not know fences of scope '" +
                            scope + "'");
  if (!isAcquireOrStronger(fence->getOrdering()) ||
      !isReleaseOrStronger(fence->getOrdering()))
    return emulation.refuse(
        "the emulator knows fences that acquire and release only");
  if (scope != "block")
    IRBuilder<>(fence).CreateCall(emulation.getFunction("fence"));
  return success();
}

LogicalResult Emulation::checkAccesses() {
  constexpr unsigned kUpdate =
      TRAINC_EMU_READ | TRAINC_EMU_WRITE | TRAINC_EMU_ATOMIC;
  for (Function &function : module)
    for (Instruction &instruction :
         make_early_inc_range(instructions(function))) {
      Checker checker(*this, &instruction);
      if (auto *load = dyn_cast<LoadInst>(&instruction)) {
        unsigned how =
            TRAINC_EMU_READ | (load->isAtomic() ? TRAINC_EMU_ATOMIC : 0);
        checker.check(load->getPointerOperand(), load->getType(), how,
                      load->getAlign());
      } else if (auto *store = dyn_cast<StoreInst>(&instruction)) {
        unsigned how =
            TRAINC_EMU_WRITE | (store->isAtomic() ? TRAINC_EMU_ATOMIC : 0);
        checker.check(store->getPointerOperand(),
                      store->getValueOperand()->getType(), how,
                      store->getAlign());
      } else if (auto *update = dyn_cast<AtomicRMWInst>(&instruction)) {
        checker.check(update->getPointerOperand(),
                      update->getValOperand()->getType(), kUpdate,
                      update->getAlign());
      } else if (auto *exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
        checker.check(exchange->getPointerOperand(),
                      exchange->getNewValOperand()->getType(), kUpdate,
                      exchange->getAlign());
      } else if (auto *fence = dyn_cast<FenceInst>(&instruction)) {
        if (failed(checkFence(*this, fence)))
          return failure();
      } else if (auto *memory = dyn_cast<MemIntrinsic>(&instruction)) {
        replaceMemory(*this, memory);
      } else if (auto *call = dyn_cast<IntrinsicInst>(&instruction)) {
        checkMasked(*this, call);
      }
    }
  return success();
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

static Align alignOf(GlobalVariable *variable, const DataLayout &layout) {
  return std::max(variable->getAlign().valueOrOne(),
                  layout.getABITypeAlign(variable->getValueType()));
}

LogicalResult Emulation::placeShared() {
  SmallVector<GlobalVariable *> variables, dynamic;
  for (GlobalVariable &variable : module.globals()) {
    if (variable.getAddressSpace() != TRAINC_EMU_SHARED)
      continue;
    if (variable.hasInitializer() &&
        !isa<UndefValue>(variable.getInitializer()))
      return refuse("shared variable '" + variable.getName() +
                    "' has an initial value");
    auto *array = dyn_cast<ArrayType>(variable.getValueType());
    (array && array->getNumElements() == 0 ? dynamic : variables)
        .push_back(&variable);
  }
  const DataLayout &layout = module.getDataLayout();
  // As little aligned as the module allows, so that what relies on more is found.
  constexpr uint64_t kLine = 1024;
  auto place = [](uint64_t from, Align align) {
    return alignTo(from, kLine) + (align.value() < kLine ? align.value() : 0);
  };
  uint64_t offset = TRAINC_EMU_GAP;
  for (GlobalVariable *variable : variables) {
    uint64_t bytes = layout.getTypeAllocSize(variable->getValueType());
    Align align = alignOf(variable, layout);
    offset = place(offset, align);
    shared.push_back({variable, offset, bytes, align});
    offset += bytes + TRAINC_EMU_GAP;
  }
  Align align;
  for (GlobalVariable *variable : dynamic)
    align = std::max(align, alignOf(variable, layout));
  dynamicOffset = place(offset, align);
  for (GlobalVariable *variable : dynamic)
    shared.push_back({variable, dynamicOffset, 0, align});

  SmallVector<Constant *> constants;
  for (const SharedVariable &variable : shared)
    constants.push_back(variable.variable);
  convertUsersOfConstantsToInstructions(constants);
  return success();
}
