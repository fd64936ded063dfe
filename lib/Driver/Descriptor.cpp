//===- Descriptor.cpp - Write the tables as constants ---------------------===//
//
// Every struct of step_abi.h is written as an LLVM constant of the same layout: its
// members in the order of step_abi_structs.def, each where the C compiler has it.
//
//===----------------------------------------------------------------------===//
#include "Descriptor.h"
#include "Kernels.h"
#include "trainc/Dialect/Train/Alignment.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/bit.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Target/TargetMachine.h"

using namespace trainc;
using llvm::Constant;

/// The members of each struct, as constants.
namespace row {
#define TRAINC_STRUCT(name, bytes) struct name {
#define TRAINC_END(name)                                                       \
  }                                                                            \
  ;
#define TRAINC_U32(member) Constant *member = nullptr;
#define TRAINC_I32(member) Constant *member = nullptr;
#define TRAINC_U64(member) Constant *member = nullptr;
#define TRAINC_I64(member) Constant *member = nullptr;
#define TRAINC_F64(member) Constant *member = nullptr;
#define TRAINC_STRING(member) Constant *member = nullptr;
#define TRAINC_NUMBERS(type, member, count) Constant *member = nullptr;
#define TRAINC_STRINGS(member, count) Constant *member = nullptr;
#define TRAINC_TABLE(name, member, count) Constant *member = nullptr;
#define TRAINC_NEXT(name, member) Constant *member = nullptr;
#define TRAINC_LISTS(name, member, count) std::array<Constant *, count> member;
#define TRAINC_POINTER(type, member) Constant *member = nullptr;
#include "trainc/step_abi_structs.def"
} // namespace row

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

  /// A member and its offset in the C compiler's struct.
  struct Member {
    Constant *value;
    uint64_t offset;
  };
  Constant *structure(llvm::ArrayRef<Member> members, uint64_t bytes);

#define TRAINC_STRUCT(name, bytes)                                             \
  Constant *make(const row::name &row) {                                       \
    using Struct = trainc_##name;                                              \
    std::vector<Member> members;
#define TRAINC_END(name)                                                       \
  return structure(members, sizeof(Struct));                                   \
  }
#define TRAINC_MEMBER(member)                                                  \
  members.push_back({row.member, offsetof(Struct, member)});
#define TRAINC_U32(member) TRAINC_MEMBER(member)
#define TRAINC_I32(member) TRAINC_MEMBER(member)
#define TRAINC_U64(member) TRAINC_MEMBER(member)
#define TRAINC_I64(member) TRAINC_MEMBER(member)
#define TRAINC_F64(member) TRAINC_MEMBER(member)
#define TRAINC_STRING(member) TRAINC_MEMBER(member)
#define TRAINC_NUMBERS(type, member, count) TRAINC_MEMBER(member)
#define TRAINC_STRINGS(member, count) TRAINC_MEMBER(member)
#define TRAINC_TABLE(name, member, count) TRAINC_MEMBER(member)
#define TRAINC_NEXT(name, member) TRAINC_MEMBER(member)
#define TRAINC_LISTS(name, member, count)                                      \
  for (size_t i = 0; i < count; ++i)                                           \
    members.push_back({row.member[i],                                          \
                       offsetof(Struct, member) + i * sizeof(trainc_##name)});
#define TRAINC_POINTER(type, member) TRAINC_MEMBER(member)
#include "trainc/step_abi_structs.def"
#undef TRAINC_MEMBER

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
                  train::kCacheLine);
  }
  /// A table of equal structs; null if it is empty.
  Constant *array(llvm::ArrayRef<Constant *> rows) {
    if (rows.empty())
      return null();
    auto *type = llvm::ArrayType::get(rows[0]->getType(), rows.size());
    return global(llvm::ConstantArray::get(type, rows));
  }
  Constant *numbers(const std::vector<int64_t> &values) {
    std::vector<Constant *> rows;
    for (int64_t value : values)
      rows.push_back(u64(value));
    return array(rows);
  }

  Constant *gemm(const trainc_gemm_detail &g);
  Constant *convolution(const trainc_convolution_detail &c);
  Constant *collective(const trainc_collective_detail &c);
  Constant *command(const CommandRow &row);
  Constant *list(const std::vector<CommandRow> &rows);
  Constant *ports(const std::vector<PortRow> &rows);
  Constant *entry(const EntryRow &row);
  Constant *arena(const ArenaRow &row);
  Constant *tensor(const TensorRow &row);
};
} // namespace

Constant *Writer::structure(llvm::ArrayRef<Member> members, uint64_t bytes) {
  llvm::SmallVector<Constant *> values;
  for (const Member &member : members) {
    if (!member.value)
      llvm::report_fatal_error("a table's row lacks a member");
    values.push_back(member.value);
  }
  Constant *result = llvm::ConstantStruct::getAnon(context, values);
  const llvm::StructLayout *layout = module.getDataLayout().getStructLayout(
      llvm::cast<llvm::StructType>(result->getType()));
  bool same = layout->getSizeInBytes() == bytes;
  for (auto [i, member] : llvm::enumerate(members))
    same &= layout->getElementOffset(i) == member.offset;
  if (!same)
    llvm::report_fatal_error("a table's row is laid out otherwise than in C");
  return result;
}

Constant *Writer::gemm(const trainc_gemm_detail &g) {
  return global(make(row::gemm_detail{.a_type = u32(g.a_type),
                                      .b_type = u32(g.b_type),
                                      .c_type = u32(g.c_type),
                                      .transpose_a = u32(g.transpose_a),
                                      .transpose_b = u32(g.transpose_b),
                                      .accumulate = u32(g.accumulate),
                                      .has_bias = u32(g.has_bias),
                                      .back_end = u32(g.back_end),
                                      .epilogue = u32(g.epilogue),
                                      .has_aux = u32(g.has_aux),
                                      .bias_gradient = u32(g.bias_gradient),
                                      .reserved = u32(0),
                                      .m = u64(g.m),
                                      .n = u64(g.n),
                                      .k = u64(g.k),
                                      .lda = u64(g.lda),
                                      .ldb = u64(g.ldb),
                                      .ldc = u64(g.ldc),
                                      .batch = u64(g.batch),
                                      .stride_a = u64(g.stride_a),
                                      .stride_b = u64(g.stride_b),
                                      .stride_c = u64(g.stride_c),
                                      .tile_m = u64(g.tile_m),
                                      .tile_n = u64(g.tile_n),
                                      .split_k = u64(g.split_k)}));
}

Constant *Writer::convolution(const trainc_convolution_detail &c) {
  return global(make(row::convolution_detail{.kind = u32(c.kind),
                                             .type = u32(c.type),
                                             .result_type = u32(c.result_type),
                                             .accumulate = u32(c.accumulate),
                                             .back_end = u32(c.back_end),
                                             .reserved = u32(0),
                                             .batch = u64(c.batch),
                                             .groups = u64(c.groups),
                                             .channels = u64(c.channels),
                                             .outputs = u64(c.outputs),
                                             .height = u64(c.height),
                                             .width = u64(c.width),
                                             .out_h = u64(c.out_h),
                                             .out_w = u64(c.out_w),
                                             .window_h = u64(c.window_h),
                                             .window_w = u64(c.window_w),
                                             .stride_h = u64(c.stride_h),
                                             .stride_w = u64(c.stride_w),
                                             .dilation_h = u64(c.dilation_h),
                                             .dilation_w = u64(c.dilation_w),
                                             .low_h = u64(c.low_h),
                                             .low_w = u64(c.low_w),
                                             .tiles = u64(c.tiles)}));
}

Constant *Writer::collective(const trainc_collective_detail &c) {
  return global(make(row::collective_detail{.axes = u32(c.axes),
                                            .piece_axes = u32(c.piece_axes),
                                            .dtype = u32(c.dtype),
                                            .phase = u32(c.phase),
                                            .scalar = u32(c.scalar)}));
}

Constant *Writer::command(const CommandRow &row) {
  std::vector<Constant *> operands;
  for (const trainc_operand &o : row.operands)
    operands.push_back(make(row::operand{.base = u32(o.base),
                                         .access = u32(o.access),
                                         .offset = u64(o.offset),
                                         .bytes = u64(o.bytes),
                                         .dtype = u32(o.dtype),
                                         .reserved = u32(0)}));
  Constant *detail = row.gemm          ? gemm(*row.gemm)
                     : row.convolution ? convolution(*row.convolution)
                     : row.collective  ? collective(*row.collective)
                                       : null();
  return make(row::command{.kind = u32(row.kind),
                           .kernel = u32(row.kernel),
                           .tiles = u64(row.tiles),
                           .num_operands = u32(operands.size()),
                           .rate = u32(row.rate),
                           .operands = array(operands),
                           .detail = detail,
                           .label = remark(row.label),
                           .location = remark(row.location),
                           .flops = u64(row.flops)});
}

Constant *Writer::list(const std::vector<CommandRow> &rows) {
  std::vector<Constant *> commands;
  for (const CommandRow &row : rows)
    commands.push_back(command(row));
  return make(row::command_list{.count = u64(commands.size()),
                                .commands = array(commands)});
}

Constant *Writer::ports(const std::vector<PortRow> &rows) {
  std::vector<Constant *> result;
  for (const PortRow &row : rows)
    result.push_back(make(row::port{.name = string(row.name),
                                    .dtype = u32(row.dtype),
                                    .rank = u32(row.dims.size()),
                                    .dims = numbers(row.dims),
                                    .bytes = u64(row.bytes),
                                    .splits = numbers(row.splits),
                                    .gradient = u64(row.gradient)}));
  return array(result);
}

Constant *Writer::entry(const EntryRow &row) {
  std::vector<Constant *> checks;
  for (const trainc_index_check &check : row.checks)
    checks.push_back(make(row::index_check{.input = u32(check.input),
                                           .has_ignore = u32(check.has_ignore),
                                           .low = u64(check.low),
                                           .high = u64(check.high),
                                           .ignore = u64(check.ignore),
                                           .begin = u64(check.begin),
                                           .rows = u64(check.rows),
                                           .stride = u64(check.stride),
                                           .run = u64(check.run)}));
  return make(row::entry{
      .name = string(row.name),
      .kind = u32(row.kind),
      .accumulate = u32(row.accumulate),
      .num_inputs = u32(row.inputs.size()),
      .num_outputs = u32(row.outputs.size()),
      .num_checks = u32(checks.size()),
      .window = u32(row.window),
      .inputs = ports(row.inputs),
      .outputs = ports(row.outputs),
      .checks = array(checks),
      .lists = {list(row.lists[0]), list(row.lists[1]), list(row.lists[2])},
      .workspace_bytes = u64(row.workspaceBytes)});
}

Constant *Writer::arena(const ArenaRow &row) {
  std::vector<Constant *> buckets;
  for (const trainc_bucket &bucket : row.buckets)
    buckets.push_back(make(row::bucket{.first = u64(bucket.first),
                                       .bytes = u64(bucket.bytes),
                                       .local = u64(bucket.local),
                                       .pieces = u64(bucket.pieces)}));
  return make(row::arena{.name = string(row.name),
                         .role = u32(row.role),
                         .dtype = u32(row.dtype),
                         .bytes = u64(row.bytes),
                         .num_buckets = u32(buckets.size()),
                         .piece_axes = u32(row.pieceAxes),
                         .buckets = array(buckets)});
}

Constant *Writer::tensor(const TensorRow &row) {
  std::vector<Constant *> splits;
  for (const trainc_split &split : row.splits)
    splits.push_back(
        make(row::split{.axes = u64(split.axes), .blocks = u64(split.blocks)}));
  return make(
      row::tensor{.name = string(row.name),
                  .state = row.state.empty() ? null() : string(row.state),
                  .role = u32(row.role),
                  .dtype = u32(row.dtype),
                  .rank = u32(row.dims.size()),
                  .arena = u32(row.arena),
                  .offset = u64(row.offset),
                  .bytes = u64(row.bytes),
                  .dims = numbers(row.dims),
                  .splits = array(splits),
                  .group = u32(static_cast<uint32_t>(row.group)),
                  .init = u32(row.init),
                  .init_a = f64(row.initA),
                  .init_b = f64(row.initB),
                  .init_data = row.data.empty() ? null() : bytes(row.data)});
}

/// The bytes of each struct, by which a runtime whose structs have more members knows
/// which are there.
static Constant *structBytes(Writer &w) {
  std::vector<Constant *> rows;
#define TRAINC_STRUCT(name, bytes) rows.push_back(w.u32(bytes));
#include "trainc/step_abi_structs.def"
  return w.array(rows);
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

/// Hash of what ranks must do alike: start every collective, in the order of the lists.
/// They are waited for in that order; behind which commands, targets may differ in.
static uint64_t hashSchedule(const Tables &tables) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (const EntryRow &entry : tables.entries)
    for (const std::vector<CommandRow> &list : entry.lists)
      for (const CommandRow &row : list) {
        if (!row.collective || row.collective->phase == TRAINC_COLLECTIVE_WAIT)
          continue;
        os << entry.name << " " << &list - entry.lists << " " << row.kind << " "
           << row.collective->axes << " " << row.collective->piece_axes << " "
           << row.collective->dtype;
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
  auto usesAmx = [](const CommandRow &row) {
    return (row.gemm && row.gemm->back_end == TRAINC_BACK_END_AMX) ||
           (row.convolution &&
            row.convolution->back_end == TRAINC_BACK_END_AMX);
  };
  bool amx = llvm::any_of(tables.kernels,
                          [](const KernelRow &row) { return row.amx; });
  for (const EntryRow &entry : tables.entries)
    for (const auto &list : entry.lists)
      amx |= llvm::any_of(list, usesAmx);
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
    axes.push_back(
        w.make(row::axis{.name = w.string(row.name), .size = w.u64(row.size)}));
  for (const TensorRow &row : tables.tensors)
    tensors.push_back(w.tensor(row));
  for (const ScalarRow &row : tables.scalars)
    scalars.push_back(w.make(row::scalar{.name = w.string(row.name),
                                         .init = w.f64(row.init),
                                         .flags = w.u32(row.flags),
                                         .reserved = w.u32(0)}));
  for (const std::string &group : tables.groups)
    groups.push_back(w.string(group));
  for (const EntryRow &row : tables.entries)
    entries.push_back(w.entry(row));
  for (const KernelRow &row : tables.kernels)
    kernels.push_back(w.make(row::kernel{
        .name = w.string(row.name),
        .function = cpu ? kernelFunction(module, row.name) : w.null(),
        .scratch_bytes = w.u64(row.scratchBytes),
        .threads = w.u32(row.threads),
        .reserved = w.u32(0)}));
  for (const ImageRow &row : tables.images)
    images.push_back(w.make(row::image{.kind = w.u32(row.kind),
                                       .arch = w.u32(row.arch),
                                       .toolkit = w.u32(row.toolkit),
                                       .reserved = w.u32(0),
                                       .bytes = w.u64(row.data.size()),
                                       .data = w.bytes(row.data)}));

  w.note(TRAINC_VERSION);
  w.note(tables.code);
  uint64_t planHash = llvm::xxh3_64bits(w.content);
  return w.make(row::descriptor{
      .magic = w.u64(TRAINC_ABI_MAGIC),
      .abi_version = w.u32(TRAINC_ABI_VERSION),
      .num_structs = w.u32(TRAINC_NUM_STRUCTS),
      .struct_bytes = structBytes(w),
      .name = w.string(tables.name),
      .compiler = w.string("trainc " TRAINC_VERSION),
      .triple = w.string(machine.getTargetTriple().str()),
      .cpu = w.string(cpu ? machine.getTargetCPU() : ""),
      .features = w.string(cpu ? featuresOf(machine, tables) : ""),
      .plan_hash = w.u64(planHash),
      .state_hash = w.u64(hashState(tables)),
      .schedule_hash = w.u64(hashSchedule(tables)),
      .num_arenas = w.u32(arenas.size()),
      .num_tensors = w.u32(tensors.size()),
      .num_scalars = w.u32(scalars.size()),
      .num_groups = w.u32(groups.size()),
      .num_entries = w.u32(entries.size()),
      .num_kernels = w.u32(kernels.size()),
      .scalar_arena = w.u32(tables.scalarArena),
      .workspace_arena = w.u32(tables.workspaceArena),
      .num_axes = w.u32(axes.size()),
      .num_windows = w.u32(tables.windows),
      .arenas = w.array(arenas),
      .tensors = w.array(tensors),
      .scalars = w.array(scalars),
      .groups = w.array(groups),
      .entries = w.array(entries),
      .kernels = w.array(kernels),
      .functions = functionTable(module),
      .axes = w.array(axes),
      .target = w.u32(tables.target),
      .num_images = w.u32(images.size()),
      .images = w.array(images),
      .next = next ? next : w.null(),
      .divisor = w.f64(tables.divisor)});
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
