//===- Tables.cpp - Gather the tables of an artifact ----------------------===//
#include "Gatherer.h"
#include "IndexChecks.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Analysis/Cost.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Dialect/Train/TrainPlaces.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

void Gatherer::gatherMesh() {
  MeshOp mesh = getMesh(module);
  if (!mesh || mesh.getCount(mesh.getAxes()) == 1)
    return;
  for (auto [axis, size] : llvm::zip(mesh.getAxes(), mesh.getSizes()))
    tables.axes.push_back(
        {cast<StringAttr>(axis).getValue().str(), static_cast<uint64_t>(size)});
}

/// Bit i: axis i of the mesh.
uint32_t Gatherer::maskOf(ArrayAttr axes) {
  uint32_t mask = 0;
  for (auto axis : axes.getAsRange<StringAttr>())
    for (auto [i, row] : llvm::enumerate(tables.axes))
      if (row.name == axis.getValue())
        mask |= 1u << i;
  return mask;
}

void Gatherer::gatherArenas() {
  auto steps = module.getOps<StepOp>();
  bool exchanges = !steps.empty() && getReducedAxes(*steps.begin());
  for (auto arena : module.getOps<ArenaOp>()) {
    trainc_role role = arena.getRole();
    trainc_dtype dtype = TRAINC_F32;
    if (auto slices = arena.getSlices(); !slices.empty())
      dtype = getDType((*slices.begin()).getTensorType().getElementType());
    arenaIndex[arena.getSymName()] = tables.arenas.size();
    if (role == TRAINC_ROLE_SCALARS)
      tables.scalarArena = tables.arenas.size();
    StringRef name = arena.getSymName();
    name.consume_front("arena.");
    const ArenaLayout &layout = layouts.of(arena);
    ArenaRow row{name.str(), role,
                 dtype,      static_cast<uint64_t>(layout.getBytes()),
                 0,          {}};
    // Only ranks ask for buckets.
    if (exchanges && role != TRAINC_ROLE_BUFFER) {
      uint64_t width = layout.getElementBytes();
      for (const Span &span : layout.getSpans())
        row.buckets.push_back(
            {span.first * width, span.count * width, span.localFirst * width,
             static_cast<uint64_t>(span.isShard() ? layout.countShards() : 1)});
    }
    for (SpanOp span : arena.getSpans())
      if (span.getOver())
        row.pieceAxes = maskOf(*span.getOver());
    tables.arenas.push_back(std::move(row));
  }
  uint64_t workspace = 0;
  for (auto list : module.getOps<ListOp>())
    workspace = std::max<uint64_t>(workspace, list.getWorkspace().value_or(0));
  tables.workspaceArena = tables.arenas.size();
  tables.arenas.push_back(
      {"workspace", TRAINC_ROLE_WORKSPACE, TRAINC_U8, workspace, 0, {}});
  for (SliceOp scalar : symbols.lookup<ArenaOp>(kScalarArena).getSlices())
    tables.scalars.push_back(
        {scalar.getSymName().str(),
         scalar.getValue() ? scalar.getValue()->convertToDouble() : 0.0,
         static_cast<uint32_t>(scalar.getFlags().value_or(0))});
}

/// Sets how the initial value is made.
/// `init` of elements `type`: an average is wider than its parameter.
static void setInit(TensorRow &row, Attribute init, Type type) {
  if (DenseElementsAttr dense = nn::getDense(init)) {
    row.init = TRAINC_INIT_DATA;
    if (auto wide = dyn_cast<FloatType>(type);
        wide && dense.getElementType() != type)
      dense = dense.mapValues(type, [&](APFloat value) {
        bool inexact = false;
        value.convert(wide.getFloatSemantics(), APFloat::rmNearestTiesToEven,
                      &inexact);
        return value.bitcastToAPInt();
      });
    if (dense.getElementType().isInteger(1)) {
      for (bool bit : dense.getValues<bool>())
        row.data.push_back(bit);
    } else if (dense.isSplat()) {
      ArrayRef<char> element = dense.getRawData();
      for (int64_t i = 0; i < dense.getNumElements(); ++i)
        row.data.append(element.data(), element.size());
    } else {
      row.data.assign(dense.getRawData().data(), dense.getRawData().size());
    }
    return;
  }
  auto parts = cast<ArrayAttr>(init);
  StringRef kind = cast<StringAttr>(parts[0]).getValue();
  auto number = [&](size_t i) {
    return cast<FloatAttr>(parts[i]).getValueAsDouble();
  };
  row.init = llvm::StringSwitch<trainc_init_kind>(kind)
                 .Case("normal", TRAINC_INIT_NORMAL)
                 .Case("uniform", TRAINC_INIT_UNIFORM)
                 .Case("truncated_normal", TRAINC_INIT_TRUNCATED_NORMAL)
                 .Default(TRAINC_INIT_CONSTANT);
  if (kind == "ones") {
    row.initA = 1.0;
  } else if (kind == "normal" && parts.size() == 2) {
    row.initB = number(1);
  } else if (parts.size() > 1) {
    row.initA = number(1);
    row.initB = parts.size() > 2 ? number(2) : 0.0;
  }
}

TensorRow &Gatherer::addTensor(StringRef name, StringRef state,
                               trainc_role role, StringRef arenaName,
                               int32_t group, Attribute init) {
  auto arena = symbols.lookup<ArenaOp>(arenaName);
  SliceOp slice = arena.findSlice(name);
  RankedTensorType type = slice.getTensorType();
  TensorRow row;
  row.name = name.str();
  row.state = state.str();
  row.role = role;
  row.dtype = getDType(type.getElementType());
  row.dims.assign(type.getShape().begin(), type.getShape().end());
  row.arena = arenaIndex.lookup(arenaName);
  row.offset = layouts.of(arena).getOffset(slice.getSymNameAttr());
  row.bytes = nn::countBytes(type);
  row.group = group;
  setInit(row, init, type.getElementType());
  return tables.tensors.emplace_back(std::move(row));
}

void Gatherer::gatherTensors() {
  Builder b(module.getContext());
  auto constant = [&](double value) {
    return b.getArrayAttr(
        {b.getStringAttr("constant"), b.getF64FloatAttr(value)});
  };
  for (auto optimizer : module.getOps<OptimizerOp>()) {
    groupIndex[optimizer.getSymName()] = tables.groups.size();
    tables.groups.push_back(optimizer.getSymName().str());
  }
  // Of the whole shape, which ranks have in parts.
  auto add = [&](ParamOp param, StringRef state, trainc_role role,
                 StringRef arena, Attribute init) {
    int32_t group =
        param.getFrozen() ? -1 : groupIndex.lookup(*param.getOptimizer());
    TensorRow &row =
        addTensor(param.getSymName(), state, role, arena, group, init);
    ArrayRef<int64_t> shape = param.getWholeType().getShape();
    row.dims.assign(shape.begin(), shape.end());
    if (param.getPartAxes().empty())
      return;
    ArrayRef<int64_t> blocks = param.getBlocks().value_or(ArrayRef<int64_t>());
    for (auto [i, axes] :
         llvm::enumerate(splitsOf(row.dims.size(), *param.getSplit())))
      row.splits.push_back(
          {static_cast<uint64_t>(axes),
           static_cast<uint64_t>(blocks.empty() ? 1 : blocks[i])});
  };
  for (auto param : module.getOps<ParamOp>())
    add(param, "", TRAINC_ROLE_MASTER,
        arenaName(kMasterArena, param.getTensorType().getElementType(), param),
        param.getInit());
  for (auto arena : module.getOps<ArenaOp>())
    if (arena.getRole() == TRAINC_ROLE_COMPUTE)
      for (auto param : module.getOps<ParamOp>())
        if (arena.findSlice(param.getSymName()))
          add(param, "", TRAINC_ROLE_COMPUTE, arena.getSymName(),
              constant(0.0));
  for (auto param : module.getOps<ParamOp>()) {
    if (param.getFrozen())
      continue;
    auto nameOf = [&](StringRef role) {
      Type type = nn::getComputeType(param.getTensorType().getElementType());
      return arenaName(role, type, param);
    };
    // Those of a window, where these are kept apart.
    std::string gradients = nameOf(kMergedArena);
    if (!symbols.lookup(gradients))
      gradients = nameOf(kGradientArena);
    add(param, "", TRAINC_ROLE_GRADIENT, gradients, constant(0.0));
    auto optimizer = symbols.lookup<OptimizerOp>(*param.getOptimizer());
    for (auto [state, value] :
         llvm::zip(optimizer.getStateNames(), optimizer.getStateValues())) {
      StringRef stateName = cast<StringAttr>(state).getValue();
      add(param, stateName, TRAINC_ROLE_STATE, nameOf(stateRole(stateName)),
          constant(cast<FloatAttr>(value).getValueAsDouble()));
    }
    if (optimizer.getEma())
      add(param, "ema", TRAINC_ROLE_STATE, nameOf(stateRole("ema")),
          param.getInit());
  }
  for (auto buffer : module.getOps<BufferOp>())
    addTensor(buffer.getSymName(), "", TRAINC_ROLE_BUFFER,
              bufferArena(buffer.getTensorType().getElementType()), -1,
              buffer.getInit());
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

static PortRow portOf(StringRef name, Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return {
      name.str(),
      getDType(tensor.getElementType()),
      std::vector<int64_t>(tensor.getShape().begin(), tensor.getShape().end()),
      static_cast<uint64_t>(nn::countBytes(tensor)),
      {}};
}

/// How `rank` dimensions are cut, as in trainc_port, where `split` is lists of axes per
/// dimension, or none; empty if none is cut.
std::vector<int64_t> Gatherer::splitsOf(size_t rank, Attribute split) {
  std::vector<int64_t> cuts(rank);
  auto dims = dyn_cast_if_present<ArrayAttr>(split);
  if (!dims || tables.axes.empty())
    return {};
  for (auto [dim, axes] : llvm::enumerate(dims.getAsRange<ArrayAttr>())) {
    int shift = 0;
    for (auto axis : axes.getAsRange<StringAttr>())
      for (auto [i, row] : llvm::enumerate(tables.axes))
        if (row.name == axis.getValue() && row.size > 1) {
          cuts[dim] |= static_cast<int64_t>(i + 1) << shift;
          shift += 8;
        }
  }
  bool any = llvm::any_of(cuts, [](int64_t cut) { return cut != 0; });
  return any ? cuts : std::vector<int64_t>();
}

/// The number + 1 of the gradient in whose memory `input`, which is one of `param`, may
/// stand; 0 if it is of another type, or sums of several micro-steps are there.
uint64_t Gatherer::gradientOf(StepOp step, StringRef param,
                              const PortRow &input) {
  for (auto [i, row] : llvm::enumerate(tables.tensors))
    if (row.role == TRAINC_ROLE_GRADIENT && row.name == param)
      return step.getAccumulate() == 1 && row.dtype == input.dtype &&
                     row.bytes == input.bytes
                 ? i + 1
                 : 0;
  return 0;
}

void Gatherer::gatherEntry(Operation *op, Region &body, ArrayAttr inputNames) {
  EntryRow entry;
  auto inputSplits = op->getAttrOfType<ArrayAttr>("input_splits");
  auto outputSplits = op->getAttrOfType<ArrayAttr>("output_splits");
  entry.name = SymbolTable::getSymbolName(op).getValue().str();
  entry.kind = isa<StepOp>(op) ? TRAINC_ENTRY_STEP : TRAINC_ENTRY_EVAL;
  StepOp
      first; // of those that share the lists that end micro-steps and windows
  if (auto step = dyn_cast<StepOp>(op)) {
    entry.accumulate = step.getAccumulate();
    if (auto divisor = step.getDivisor())
      tables.divisor = divisor->convertToDouble();
    first = getFirstOfWindow(step);
    entry.window = windows.try_emplace(first, tables.windows).first->second;
    tables.windows = windows.size();
  }
  for (auto [argument, name] : llvm::zip(body.getArguments(), inputNames)) {
    entry.inputs.push_back(
        portOf(cast<StringAttr>(name).getValue(), argument.getType()));
    if (inputSplits)
      entry.inputs.back().splits =
          splitsOf(entry.inputs.back().dims.size(),
                   inputSplits[argument.getArgNumber()]);
    if (auto step = dyn_cast<StepOp>(op))
      if (auto param = step.getInputGradient(argument.getArgNumber()))
        entry.inputs.back().gradient =
            gradientOf(step, param.getValue(), entry.inputs.back());
    llvm::append_range(entry.checks, findIndexChecks(argument));
  }
  auto outputs = cast<train::YieldOp>(body.front().getTerminator()).getValues();
  for (auto [name, value] :
       llvm::zip(op->getAttrOfType<ArrayAttr>("output_names"), outputs)) {
    entry.outputs.push_back(
        portOf(cast<StringAttr>(name).getValue(), value.getType()));
    if (outputSplits)
      entry.outputs.back().splits =
          splitsOf(entry.outputs.back().dims.size(),
                   outputSplits[entry.outputs.size() - 1]);
  }
  // Last, as its commands come behind those of others.
  auto isShared = [&](ListOp list) {
    return first && list.getEntry() == first.getSymName() &&
           (list.getKind() == ListKind::merge ||
            list.getKind() == ListKind::apply);
  };
  for (bool merges : {false, true})
    for (auto list : module.getOps<ListOp>())
      if ((list.getEntry() == entry.name || isShared(list)) &&
          (list.getKind() == ListKind::merge) == merges)
        gatherList(entry, list);
  tables.entries.push_back(std::move(entry));
}

Tables trainc::gatherTables(ModuleOp module, StringRef name,
                            trainc_target target) {
  Gatherer gatherer(module, name, target);
  gatherer.gatherMesh();
  gatherer.gatherArenas();
  gatherer.gatherTensors();
  for (auto kernel : module.getOps<KernelOp>()) {
    gatherer.kernelIndex[kernel.getSymName()] = gatherer.tables.kernels.size();
    KernelRow &row = gatherer.tables.kernels.emplace_back();
    row.name = kernel.getSymName().str();
    if (AbiAttr abi = kernel.getAbiAttr()) {
      row.scratchBytes = abi.getScratch();
      row.threads = abi.getThreads();
      row.amx = abi.getAmx();
    }
  }
  for (auto step : module.getOps<StepOp>())
    gatherer.gatherEntry(step, step.getBody(), step.getInputNames());
  for (auto eval : module.getOps<EvalOp>())
    gatherer.gatherEntry(eval, eval.getBody(), eval.getInputNames());
  return std::move(gatherer.tables);
}
