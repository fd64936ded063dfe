//===- Descriptor.cpp - Write the tables as constants ---------------------===//
//
// Every struct of step_abi.h is written as an LLVM constant of the same layout:
// members in order, naturally aligned, as the C compiler does.
//
//===----------------------------------------------------------------------===//
#include "Descriptor.h"
#include "Kernels.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/bit.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Target/TargetMachine.h"

using namespace trainc;
using llvm::Constant;

namespace {
struct Writer {
  llvm::Module &module;
  llvm::LLVMContext &context;
  llvm::StringMap<Constant *> strings;
  /// Everything written that decides what an artifact computes: all but what it says of
  /// its commands.
  std::string content;

  explicit Writer(llvm::Module &module)
      : module(module), context(module.getContext()) {}

  void note(llvm::StringRef text) {
    note(text.size());
    content += text;
  }
  void note(uint64_t value) {
    std::array<char, 8> bytes;
    llvm::support::endian::write64le(bytes.data(), value);
    content.append(bytes.begin(), bytes.end());
  }

  Constant *u32(uint64_t value) {
    note(value);
    return llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), value);
  }
  Constant *u64(uint64_t value) {
    note(value);
    return llvm::ConstantInt::get(llvm::Type::getInt64Ty(context), value);
  }
  Constant *f64(double value) {
    note(llvm::bit_cast<uint64_t>(value));
    return llvm::ConstantFP::get(llvm::Type::getDoubleTy(context), value);
  }
  Constant *null() {
    return llvm::ConstantPointerNull::get(llvm::PointerType::get(context, 0));
  }
  Constant *structure(llvm::ArrayRef<Constant *> members) {
    return llvm::ConstantStruct::getAnon(context, members);
  }

  Constant *global(Constant *value, unsigned alignment = 8) {
    auto *result = new llvm::GlobalVariable(
        module, value->getType(), /*isConstant=*/true,
        llvm::GlobalValue::PrivateLinkage, value, "table");
    result->setAlignment(llvm::Align(alignment));
    return result;
  }
  Constant *string(llvm::StringRef text) {
    note(text);
    return remark(text);
  }
  /// A string that is for readers alone.
  Constant *remark(llvm::StringRef text) {
    auto [it, inserted] = strings.try_emplace(text, nullptr);
    if (inserted)
      it->second = global(llvm::ConstantDataArray::getString(context, text), 1);
    return it->second;
  }
  Constant *bytes(llvm::StringRef data) {
    note(data);
    return global(llvm::ConstantDataArray::getString(context, data,
                                                     /*AddNull=*/false),
                  64);
  }
  /// A table of equal structs; null if it is empty.
  Constant *array(llvm::ArrayRef<Constant *> rows) {
    if (rows.empty())
      return null();
    auto *type = llvm::ArrayType::get(rows[0]->getType(), rows.size());
    return global(llvm::ConstantArray::get(type, rows));
  }
  Constant *dims(const std::vector<int64_t> &values) {
    std::vector<Constant *> rows;
    for (int64_t value : values)
      rows.push_back(u64(value));
    return array(rows);
  }

  Constant *command(const CommandRow &row);
  Constant *list(const std::vector<CommandRow> &rows);
  Constant *ports(const std::vector<PortRow> &rows);
  Constant *entry(const EntryRow &row);
  Constant *arena(const ArenaRow &row);
  Constant *tensor(const TensorRow &row);
};
} // namespace

Constant *Writer::command(const CommandRow &row) {
  std::vector<Constant *> operands;
  for (const trainc_operand &o : row.operands)
    operands.push_back(structure({u32(o.base), u32(o.access), u64(o.offset),
                                  u64(o.bytes), u32(o.dtype), u32(0)}));
  Constant *detail = null();
  if (row.gemm) {
    const trainc_gemm_detail &g = *row.gemm;
    std::vector<Constant *> members;
    for (uint32_t value : {g.a_type, g.b_type, g.c_type, g.transpose_a,
                           g.transpose_b, g.accumulate, g.has_bias, g.provider,
                           g.epilogue, g.has_aux, g.bias_gradient, g.reserved})
      members.push_back(u32(value));
    for (int64_t value :
         {g.m, g.n, g.k, g.lda, g.ldb, g.ldc, g.batch[0], g.batch[1],
          g.stride_a[0], g.stride_a[1], g.stride_b[0], g.stride_b[1],
          g.stride_c[0], g.stride_c[1], g.tile_m, g.tile_n})
      members.push_back(u64(value));
    detail = global(structure(members));
  } else if (row.collective) {
    const trainc_collective_detail &c = *row.collective;
    detail = global(structure(
        {u32(c.axes), u32(c.piece_axes), u32(c.dtype), u32(c.phase)}));
  }
  return structure({u32(row.kind), u32(row.kernel), u64(row.tiles),
                    u32(operands.size()), u32(row.rate), array(operands),
                    detail, remark(row.label), remark(row.location),
                    u64(row.flops)});
}

Constant *Writer::list(const std::vector<CommandRow> &rows) {
  std::vector<Constant *> commands;
  for (const CommandRow &row : rows)
    commands.push_back(command(row));
  return structure({u64(commands.size()), array(commands)});
}

Constant *Writer::ports(const std::vector<PortRow> &rows) {
  std::vector<Constant *> result;
  for (const PortRow &row : rows)
    result.push_back(
        structure({string(row.name), u32(row.dtype), u32(row.dims.size()),
                   dims(row.dims), u64(row.bytes), dims(row.splits)}));
  return array(result);
}

Constant *Writer::entry(const EntryRow &row) {
  std::vector<Constant *> checks;
  for (const trainc_index_check &check : row.checks)
    checks.push_back(
        structure({u32(check.input), u32(check.has_ignore), u64(check.low),
                   u64(check.high), u64(check.ignore)}));
  return structure({string(row.name), u32(row.kind), u32(row.accumulate),
                    u32(row.inputs.size()), u32(row.outputs.size()),
                    u32(checks.size()), u32(row.window), ports(row.inputs),
                    ports(row.outputs), array(checks), list(row.lists[0]),
                    list(row.lists[1]), list(row.lists[2]),
                    u64(row.workspaceBytes)});
}

Constant *Writer::arena(const ArenaRow &row) {
  std::vector<Constant *> buckets;
  for (const trainc_bucket &bucket : row.buckets)
    buckets.push_back(structure({u64(bucket.first), u64(bucket.bytes),
                                 u64(bucket.local), u64(bucket.pieces)}));
  return structure({string(row.name), u32(row.role), u32(row.dtype),
                    u64(row.bytes), null(), u32(buckets.size()),
                    u32(row.pieceAxes), array(buckets)});
}

Constant *Writer::tensor(const TensorRow &row) {
  std::vector<Constant *> splits;
  for (const trainc_split &split : row.splits)
    splits.push_back(structure({u64(split.axes), u64(split.blocks)}));
  return structure(
      {string(row.name), row.state.empty() ? null() : string(row.state),
       u32(row.role), u32(row.dtype), u32(row.dims.size()), u32(row.arena),
       u64(row.offset), u64(row.bytes), dims(row.dims), array(splits),
       u32(static_cast<uint32_t>(row.group)), u32(row.init), f64(row.initA),
       f64(row.initB), row.data.empty() ? null() : bytes(row.data)});
}

/// Hash of what a state fits: names, shapes, types of parameters and states.
static uint64_t hashState(const Tables &tables) {
  std::string text;
  for (const TensorRow &row : tables.tensors) {
    if (row.role == TRAINC_ROLE_GRADIENT || row.role == TRAINC_ROLE_COMPUTE)
      continue;
    text += row.name + "/" + row.state + ":" + std::to_string(row.dtype);
    for (int64_t dim : row.dims)
      text += "x" + std::to_string(dim);
    if (row.group >= 0)
      text += "@" + tables.groups[row.group];
    text += "\n";
  }
  return llvm::xxh3_64bits(text);
}

/// Hash of what ranks must do alike: every collective, in the order of the lists.
static uint64_t hashSchedule(const Tables &tables) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (const EntryRow &entry : tables.entries)
    for (const std::vector<CommandRow> &list : entry.lists)
      for (const CommandRow &row : list)
        if (row.collective) {
          os << entry.name << " " << &list - entry.lists << " " << row.kind
             << " " << row.collective->axes << " " << row.collective->piece_axes
             << " " << row.collective->dtype << " " << row.collective->phase;
          for (const trainc_operand &operand : row.operands)
            os << " " << operand.bytes;
          os << "\n";
        }
  return text.empty() ? 0 : llvm::xxh3_64bits(text);
}

/// Where the kernels of the CPU find the runtime's function table.
static Constant *functionTable(llvm::Module &module) {
  if (auto *functions = module.getNamedGlobal(kFunctionTable))
    return functions;
  auto *type = llvm::PointerType::get(module.getContext(), 0);
  auto *functions = new llvm::GlobalVariable(
      module, type, /*isConstant=*/false, llvm::GlobalValue::ExternalLinkage,
      llvm::ConstantPointerNull::get(type), kFunctionTable);
  functions->setVisibility(llvm::GlobalValue::HiddenVisibility);
  return functions;
}

/// The kernel of the CPU with this name, which may be in an object of its own.
static Constant *kernelFunction(llvm::Module &module, llvm::StringRef name) {
  if (auto *function = module.getFunction(name))
    return function;
  llvm::LLVMContext &context = module.getContext();
  auto *pointer = llvm::PointerType::get(context, 0);
  auto *type = llvm::FunctionType::get(
      llvm::Type::getVoidTy(context),
      {pointer, llvm::Type::getInt64Ty(context), pointer}, /*isVarArg=*/false);
  auto *function = llvm::Function::Create(
      type, llvm::GlobalValue::ExternalLinkage, name, module);
  function->setVisibility(llvm::GlobalValue::HiddenVisibility);
  return function;
}

/// Features that `machine` may use: the code may need any of them, but for tile
/// registers, which no compiler uses by itself and a system may refuse.
static std::string featuresOf(const llvm::TargetMachine &machine,
                              const Tables &tables) {
  std::string features;
  bool amx = llvm::any_of(tables.kernels,
                          [](const KernelRow &row) { return row.amx; });
  auto isNeeded = [&](llvm::StringRef feature) {
    return !feature.starts_with("amx-") ||
           (amx && (feature == "amx-bf16" || feature == "amx-tile"));
  };
  for (llvm::StringRef part :
       llvm::split(machine.getTargetFeatureString(), ","))
    if (part.consume_front("+") && isNeeded(part))
      features += (features.empty() ? "" : ",") + part.str();
  return features;
}

/// The descriptor of one target; `next` is that of another one, or null.
static Constant *makeDescriptor(llvm::Module &module, const Tables &tables,
                                const llvm::TargetMachine &machine,
                                Constant *next) {
  Writer w(module);
  bool cpu = tables.target == TRAINC_TARGET_CPU;
  std::vector<Constant *> arenas, tensors, scalars, groups, entries, kernels,
      axes, images;
  for (const ArenaRow &row : tables.arenas)
    arenas.push_back(w.arena(row));
  for (const AxisRow &row : tables.axes)
    axes.push_back(w.structure({w.string(row.name), w.u64(row.size)}));
  for (const TensorRow &row : tables.tensors)
    tensors.push_back(w.tensor(row));
  for (const ScalarRow &row : tables.scalars)
    scalars.push_back(w.structure(
        {w.string(row.name), w.f64(row.init), w.u32(row.flags), w.u32(0)}));
  for (const std::string &group : tables.groups)
    groups.push_back(w.string(group));
  for (const EntryRow &row : tables.entries)
    entries.push_back(w.entry(row));
  for (const KernelRow &row : tables.kernels)
    kernels.push_back(w.structure(
        {w.string(row.name), cpu ? kernelFunction(module, row.name) : w.null(),
         w.u64(row.scratchBytes), w.u32(row.threads), w.u32(0)}));
  for (const ImageRow &row : tables.images)
    images.push_back(
        w.structure({w.u32(row.kind), w.u32(row.arch), w.u32(row.toolkit),
                     w.u32(0), w.u64(row.data.size()), w.bytes(row.data)}));

  w.note(TRAINC_VERSION);
  w.note(tables.code);
  uint64_t planHash = llvm::xxh3_64bits(w.content);
  auto table = [&](const std::vector<Constant *> &rows) {
    return w.array(rows);
  };
  Constant *descriptor =
      w.structure({w.u64(TRAINC_ABI_MAGIC),
                   w.u32(TRAINC_ABI_VERSION),
                   w.u32(sizeof(trainc_descriptor)),
                   w.string(tables.name),
                   w.string("trainc " TRAINC_VERSION),
                   w.string(machine.getTargetTriple().str()),
                   w.string(cpu ? machine.getTargetCPU() : ""),
                   w.string(cpu ? featuresOf(machine, tables) : ""),
                   w.u64(planHash),
                   w.u64(hashState(tables)),
                   w.u64(hashSchedule(tables)),
                   w.u32(arenas.size()),
                   w.u32(tensors.size()),
                   w.u32(scalars.size()),
                   w.u32(groups.size()),
                   w.u32(entries.size()),
                   w.u32(kernels.size()),
                   w.u32(tables.scalarArena),
                   w.u32(tables.workspaceArena),
                   w.u32(axes.size()),
                   w.u32(tables.windows),
                   table(arenas),
                   table(tensors),
                   table(scalars),
                   table(groups),
                   table(entries),
                   table(kernels),
                   functionTable(module),
                   table(axes),
                   w.u32(tables.target),
                   w.u32(images.size()),
                   table(images),
                   next ? next : w.null()});
  assert(module.getDataLayout().getTypeAllocSize(descriptor->getType()) ==
             sizeof(trainc_descriptor) &&
         "descriptor layout differs from step_abi.h");
  return descriptor;
}

void trainc::emitDescriptors(llvm::Module &module,
                             llvm::ArrayRef<Tables> targets,
                             const llvm::TargetMachine &machine) {
  Constant *next = nullptr;
  for (const Tables &tables : llvm::reverse(targets)) {
    bool first = &tables == targets.begin();
    Constant *descriptor = makeDescriptor(module, tables, machine, next);
    next = new llvm::GlobalVariable(
        module, descriptor->getType(), /*isConstant=*/true,
        first ? llvm::GlobalValue::ExternalLinkage
              : llvm::GlobalValue::InternalLinkage,
        descriptor, first ? tables.name + "_descriptor" : "descriptor");
  }
}
