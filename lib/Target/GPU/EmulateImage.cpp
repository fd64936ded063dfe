//===- EmulateImage.cpp - The tables of an image --------------------------===//
#include "Emulation.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/IR/InstIterator.h"

using namespace llvm;
using namespace trainc;

//===----------------------------------------------------------------------===//
// The emulator's functions
//===----------------------------------------------------------------------===//

namespace {
struct FunctionEntry {
  StringLiteral name, signature;
  bool math;
};
} // namespace

static constexpr FunctionEntry kFunctions[] = {
#define TRAINC_EMU_FUNCTION(name, signature) {#name, signature, false},
#include "trainc/Target/GPU/emulator_abi.def"
#define TRAINC_EMU_MATH(name, signature) {#name, signature, true},
#include "trainc/Target/GPU/emulator_abi.def"
};
static constexpr StringLiteral kPrefix = "trainc_emu_";
static constexpr StringLiteral kMathPrefix = "trainc_emu_math_";

static Type *typeOf(char letter, LLVMContext &context) {
  switch (letter) {
  case 'p':
    return PointerType::get(context, 0);
  case 'i':
    return Type::getInt32Ty(context);
  case 'l':
    return Type::getInt64Ty(context);
  case 'f':
    return Type::getFloatTy(context);
  case 'd':
    return Type::getDoubleTy(context);
  default:
    return Type::getVoidTy(context);
  }
}

static FunctionCallee declare(Module &module, const FunctionEntry &entry) {
  LLVMContext &context = module.getContext();
  SmallVector<Type *> parameters;
  for (char letter : entry.signature.drop_front())
    parameters.push_back(typeOf(letter, context));
  auto *type =
      FunctionType::get(typeOf(entry.signature[0], context), parameters, false);
  StringRef prefix = entry.math ? kMathPrefix : kPrefix;
  FunctionCallee callee =
      module.getOrInsertFunction((prefix + entry.name).str(), type);
  auto *function = cast<Function>(callee.getCallee());
  function->setDoesNotThrow();
  // The emulator sees where a barrier is by where it returns to.
  if (entry.name == "barrier")
    function->setConvergent();
  // The same for a thread from its begin to its end.
  if (entry.math || entry.name == "special" || entry.name == "shared") {
    function->setDoesNotAccessMemory();
    function->setWillReturn();
  }
  return callee;
}

FunctionCallee Emulation::getFunction(StringRef name) {
  for (const FunctionEntry &entry : kFunctions)
    if (!entry.math && entry.name == name)
      return declare(module, entry);
  llvm_unreachable("a function that the emulator lacks");
}

FunctionCallee Emulation::findMath(StringRef name) {
  for (const FunctionEntry &entry : kFunctions)
    if (entry.math && entry.name == name)
      return declare(module, entry);
  return {};
}

/// Gives the emulator's functions bodies that call through the table, and returns
/// the variable that holds its address. The image refers to it, so that no pass
/// takes the null for its value.
static GlobalVariable *defineFunctions(Module &module) {
  LLVMContext &context = module.getContext();
  Type *pointer = PointerType::get(context, 0);
  auto *table = new GlobalVariable(
      module, pointer, /*isConstant=*/false, GlobalValue::InternalLinkage,
      ConstantPointerNull::get(cast<PointerType>(pointer)), "trainc_emu_table");
  for (const auto &[slot, entry] : enumerate(kFunctions)) {
    StringRef prefix = entry.math ? kMathPrefix : kPrefix;
    Function *function = module.getFunction((prefix + entry.name).str());
    if (!function)
      continue;
    function->setLinkage(GlobalValue::InternalLinkage);
    function->removeFnAttr(Attribute::Memory);
    function->addFnAttr(Attribute::AlwaysInline);
    IRBuilder<> builder(BasicBlock::Create(context, "", function));
    Value *slots = builder.CreateLoad(pointer, table);
    Value *target = builder.CreateLoad(
        pointer, builder.CreateConstGEP1_64(pointer, slots, slot));
    SmallVector<Value *> arguments;
    for (Argument &argument : function->args())
      arguments.push_back(&argument);
    CallInst *call =
        builder.CreateCall(function->getFunctionType(), target, arguments);
    call->setDoesNotThrow();
    if (function->isConvergent())
      call->setConvergent();
    if (entry.math || entry.name == "special" || entry.name == "shared")
      call->setDoesNotAccessMemory();
    if (function->getReturnType()->isVoidTy())
      builder.CreateRetVoid();
    else
      builder.CreateRet(call);
  }
  return table;
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

namespace {
/// Builds constants of the structs of emulator_abi.h.
struct TableBuilder {
  Module &module;
  LLVMContext &context = module.getContext();
  Type *pointer = PointerType::get(context, 0);
  Type *i32 = Type::getInt32Ty(context);
  Type *i64 = Type::getInt64Ty(context);

  Constant *number(uint32_t value) { return ConstantInt::get(i32, value); }
  Constant *wide(uint64_t value) { return ConstantInt::get(i64, value); }
  Constant *null() {
    return ConstantPointerNull::get(cast<PointerType>(pointer));
  }
  Constant *global(Constant *value, const Twine &name = "") {
    auto *variable =
        new GlobalVariable(module, value->getType(), /*isConstant=*/true,
                           GlobalValue::PrivateLinkage, value, name);
    return variable;
  }
  Constant *text(StringRef value) {
    return global(ConstantDataArray::getString(context, value));
  }
  Constant *numbers(ArrayRef<uint32_t> values) {
    return values.empty() ? null()
                          : global(ConstantDataArray::get(context, values));
  }
  Constant *table(ArrayRef<Constant *> rows) {
    if (rows.empty())
      return null();
    return global(ConstantArray::get(
        ArrayType::get(rows[0]->getType(), rows.size()), rows));
  }
  Constant *record(ArrayRef<Constant *> fields) {
    return ConstantStruct::getAnon(context, fields);
  }
  Constant *variable(StringRef name, Constant *address, uint64_t offset,
                     uint64_t bytes, bool constant) {
    return record({text(name), address, wide(offset), wide(bytes),
                   number(constant), number(0)});
  }
};
} // namespace

/// The function that takes pointers to the arguments of a kernel.
static Function *makeEntry(Module &module, Function *kernel) {
  LLVMContext &context = module.getContext();
  Type *pointer = PointerType::get(context, 0);
  auto *entry = Function::Create(
      FunctionType::get(Type::getVoidTy(context), {pointer}, false),
      GlobalValue::InternalLinkage, "trainc_emu_run_" + kernel->getName(),
      module);
  IRBuilder<> builder(BasicBlock::Create(context, "", entry));
  SmallVector<Value *> arguments;
  for (Argument &argument : kernel->args()) {
    Value *slot = builder.CreateConstGEP1_64(pointer, entry->getArg(0),
                                             argument.getArgNo());
    Value *address = builder.CreateLoad(pointer, slot);
    if (argument.hasByValAttr())
      arguments.push_back(
          builder.CreateAddrSpaceCast(address, argument.getType()));
    else
      arguments.push_back(builder.CreateLoad(argument.getType(), address));
  }
  builder.CreateCall(kernel, arguments);
  builder.CreateRetVoid();
  return entry;
}

/// The numbers of an attribute such as "nvvm.reqntid"="64,1,1".
static SmallVector<uint32_t> numbersOf(Function *kernel, StringRef name) {
  SmallVector<uint32_t> numbers;
  if (!kernel->hasFnAttribute(name))
    return numbers;
  SmallVector<StringRef> texts;
  kernel->getFnAttribute(name).getValueAsString().split(texts, ',');
  for (StringRef text : texts) {
    uint32_t value = 1;
    if (!text.trim().getAsInteger(10, value))
      numbers.push_back(value);
  }
  return numbers;
}

/// The functions that a kernel may run.
static SetVector<Function *> reachable(Function *kernel) {
  SetVector<Function *> functions;
  functions.insert(kernel);
  for (size_t i = 0; i < functions.size(); ++i)
    for (Instruction &instruction : instructions(*functions[i]))
      for (Value *operand : instruction.operands())
        if (auto *function = dyn_cast<Function>(operand))
          functions.insert(function);
  return functions;
}

static Constant *makeKernel(TableBuilder &builder, Function *kernel,
                            ArrayRef<SharedVariable> shared) {
  const DataLayout &layout = builder.module.getDataLayout();
  SmallVector<uint32_t> sizes;
  for (Argument &argument : kernel->args()) {
    Type *type = argument.hasByValAttr() ? argument.getParamByValType()
                                         : argument.getType();
    sizes.push_back(layout.getTypeStoreSize(type));
  }
  // What a driver would report: the variables one behind the other.
  SetVector<Function *> functions = reachable(kernel);
  uint64_t bytes = 0;
  bool dynamic = false;
  for (const SharedVariable &variable : shared) {
    bool used = any_of(variable.variable->users(), [&](User *user) {
      auto *instruction = dyn_cast<Instruction>(user);
      return instruction && functions.contains(instruction->getFunction());
    });
    if (used && variable.bytes)
      bytes = alignTo(bytes, variable.align) + variable.bytes;
    dynamic |= used && variable.bytes == 0;
  }
  SmallVector<uint32_t> most = numbersOf(kernel, "nvvm.maxntid");
  SmallVector<uint32_t> required = numbersOf(kernel, "nvvm.reqntid");
  uint32_t maxThreads = most.empty() ? 0 : 1;
  for (uint32_t size : most)
    maxThreads *= size;
  bool isRequired = !required.empty();
  required.resize(3, isRequired ? 1 : 0);
  Constant *block = ConstantArray::get(ArrayType::get(builder.i32, 3),
                                       {builder.number(required[0]),
                                        builder.number(required[1]),
                                        builder.number(required[2])});
  return builder.record({builder.text(kernel->getName()),
                         makeEntry(builder.module, kernel),
                         builder.numbers(sizes), builder.number(sizes.size()),
                         builder.number(bytes), builder.number(dynamic),
                         builder.number(maxThreads), block, builder.number(0)});
}

/// Replaces the uses of a variable in shared memory by its place in the memory of
/// the block that runs.
static void useOffset(Emulation &emulation, const SharedVariable &shared) {
  DenseMap<Function *, Value *> bases;
  for (Use &use : make_early_inc_range(shared.variable->uses())) {
    Function *function = cast<Instruction>(use.getUser())->getFunction();
    Value *&base = bases[function];
    if (!base) {
      BasicBlock &entry = function->getEntryBlock();
      IRBuilder<> builder(&entry, entry.begin());
      Value *pointer = builder.CreateCall(emulation.getFunction("shared"),
                                          {builder.getInt64(shared.offset)});
      base = builder.CreateAddrSpaceCast(pointer, shared.variable->getType());
    }
    use.set(base);
  }
}

void Emulation::addTables() {
  TableBuilder builder{module};
  SmallVector<Constant *> globals, kernelRows, sharedRows;
  SmallVector<GlobalVariable *> variables;
  for (GlobalVariable &variable : module.globals())
    if (variable.getAddressSpace() != TRAINC_EMU_SHARED &&
        variable.hasInitializer())
      variables.push_back(&variable);
  for (GlobalVariable *variable : variables) {
    Constant *address = ConstantExpr::getPointerBitCastOrAddrSpaceCast(
        variable, builder.pointer);
    uint64_t bytes =
        module.getDataLayout().getTypeAllocSize(variable->getValueType());
    if (bytes)
      globals.push_back(builder.variable(variable->getName(), address, 0, bytes,
                                         variable->isConstant()));
  }
  for (Function *kernel : kernels)
    kernelRows.push_back(makeKernel(builder, kernel, shared));
  for (const SharedVariable &variable : shared)
    sharedRows.push_back(builder.variable(variable.variable->getName(),
                                          builder.null(), variable.offset,
                                          variable.bytes, false));
  for (const SharedVariable &variable : shared) {
    useOffset(*this, variable);
    variable.variable->eraseFromParent();
  }
  SmallVector<Constant *> siteRows;
  for (const std::string &site : sites)
    siteRows.push_back(builder.text(site));
  GlobalVariable *table = defineFunctions(module);
  Constant *image = builder.record(
      {builder.number(TRAINC_EMU_ABI_VERSION),
       builder.number(std::size(kFunctions)), table, builder.table(kernelRows),
       builder.table(sharedRows), builder.table(globals),
       builder.number(kernelRows.size()), builder.number(sharedRows.size()),
       builder.number(globals.size()), builder.number(siteRows.size()),
       builder.table(siteRows), builder.wide(dynamicOffset)});
  auto *variable = new GlobalVariable(
      module, image->getType(), /*isConstant=*/true,
      GlobalValue::ExternalLinkage, image, "trainc_emu_image");
  variable->setDSOLocal(true);
}
