//===- CommandTables.cpp - Gather the commands of an artifact -------------===//
#include "Gatherer.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Analysis/Cost.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// file:line:column of the innermost file location.
static std::string describe(Location loc) {
  std::string text;
  loc->walk([&](Location inner) {
    auto file = dyn_cast<FileLineColLoc>(inner);
    if (!file)
      return WalkResult::advance();
    text = (llvm::sys::path::filename(file.getFilename().getValue()) + ":" +
            Twine(file.getLine()) + ":" + Twine(file.getColumn()))
               .str();
    return WalkResult::interrupt();
  });
  return text;
}

trainc_operand Gatherer::operandOf(EntryRow &entry, Value buffer,
                                   uint32_t access) {
  auto type = cast<MemRefType>(buffer.getType());
  trainc_operand operand{};
  operand.access = access;
  operand.bytes = nn::countBytes(type);
  operand.dtype = getDType(type.getElementType());
  operand.offset = getPlace(buffer, layouts).begin;
  AddressOp address = getAddress(buffer);
  switch (address.getMemory()) {
  case Memory::arena:
    operand.base =
        arenaIndex.lookup(address.getSymbol()->getRootReference().getValue());
    break;
  case Memory::workspace:
    operand.base = tables.workspaceArena;
    break;
  case Memory::input:
    operand.base = tables.arenas.size() + address.getNumber();
    break;
  case Memory::output:
    operand.base =
        tables.arenas.size() + entry.inputs.size() + address.getNumber();
  }
  return operand;
}

// Enums of train.gemm have the numbers of step_abi.def.
#define TRAINC_BACK_END(NAME, number)                                          \
  static_assert(static_cast<uint32_t>(BackEnd::NAME) == number);
#include "trainc/step_abi.def"

template <typename Enum>
static constexpr bool equal(Enum value, uint32_t number) {
  return static_cast<uint32_t>(value) == number;
}
static_assert(equal(Epilogue::none, TRAINC_EPILOGUE_NONE) &&
              equal(Epilogue::gelu, TRAINC_EPILOGUE_GELU) &&
              equal(Epilogue::gelu_grad, TRAINC_EPILOGUE_GELU_GRAD) &&
              equal(Epilogue::gelu_and_slope, TRAINC_EPILOGUE_GELU_AND_SLOPE) &&
              equal(Epilogue::multiply, TRAINC_EPILOGUE_MULTIPLY));
static_assert(equal(BiasGradient::none, TRAINC_BIAS_GRADIENT_NONE) &&
              equal(BiasGradient::lhs, TRAINC_BIAS_GRADIENT_A) &&
              equal(BiasGradient::rhs, TRAINC_BIAS_GRADIENT_B) &&
              equal(BiasGradient::result, TRAINC_BIAS_GRADIENT_C));

static trainc_gemm_detail gemmDetail(GemmOp op) {
  trainc_gemm_detail gemm{};
  auto dtype = [](Value value) {
    return getDType(cast<ShapedType>(value.getType()).getElementType());
  };
  gemm.a_type = dtype(op.getLhs());
  gemm.b_type = dtype(op.getRhs());
  gemm.c_type = dtype(op.getMain());
  gemm.transpose_a = op.getTransposeLhs();
  gemm.transpose_b = op.getTransposeRhs();
  gemm.accumulate = op.accumulates();
  gemm.has_bias = op.getBias() ? 1 : 0;
  gemm.epilogue = static_cast<uint32_t>(op.getEpilogue());
  gemm.has_aux = op.getAt() || op.getSecond() ? 1 : 0;
  gemm.bias_gradient = static_cast<uint32_t>(op.getBiasGradient());
  gemm.m = op.getM();
  gemm.n = op.getN();
  gemm.k = op.getK();
  gemm.lda = op.getLhsPitch();
  gemm.ldb = op.getRhsPitch();
  gemm.ldc = op.getPitch();
  gemm.batch = op.getBatch();
  gemm.stride_a = gemm.lda * (op.getTransposeLhs() ? gemm.k : gemm.m);
  gemm.stride_b = op.getBroadcastRhs()
                      ? 0
                      : gemm.ldb * (op.getTransposeRhs() ? gemm.n : gemm.k);
  gemm.stride_c = gemm.m * gemm.ldc;
  // Form 3 has plans.
  GemmPlanAttr plan = op.getPlanAttr();
  gemm.back_end = static_cast<uint32_t>(plan.getBackEnd());
  gemm.tile_m = plan.getTileM();
  gemm.tile_n = plan.getTileN();
  gemm.split_k = plan.getSplitK();
  return gemm;
}

CommandRow Gatherer::commandOf(EntryRow &entry, ListOp list, LaunchOp launch) {
  auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
  CommandRow command;
  command.kind = TRAINC_COMMAND_LAUNCH;
  command.kernel = kernelIndex.lookup(launch.getKernel());
  if (AbiAttr abi = kernel.getAbiAttr())
    command.tiles = abi.getWorkgroups();
  command.label = launch.getKernel().drop_front(2).str();
  nn::Unit unit = unitOf(kernel);
  command.flops = flopsOf(workOf(kernel), unit);
  // The arguments in their order, then the results that are in place of none.
  ArrayRef<int64_t> inPlace = kernel.getInplace();
  auto input = launch.getInputs().begin();
  for (BlockArgument argument : kernel.getBody().getArguments()) {
    const auto *result = llvm::find(inPlace, argument.getArgNumber());
    if (result == inPlace.end())
      command.operands.push_back(operandOf(entry, *input++, TRAINC_READ));
    else
      command.operands.push_back(
          operandOf(entry, launch.getOuts()[result - inPlace.begin()],
                    TRAINC_READ | TRAINC_WRITE));
  }
  for (auto [out, argument] : llvm::zip(launch.getOuts(), inPlace))
    if (argument < 0)
      command.operands.push_back(operandOf(entry, out, TRAINC_WRITE));
  command.rate =
      rateOf(unit, static_cast<trainc_dtype>(command.operands[0].dtype),
             /*update=*/list.getKind() == ListKind::apply);
  return command;
}

CommandRow Gatherer::commandOf(EntryRow &entry, GemmOp gemm) {
  CommandRow command;
  command.kind = TRAINC_COMMAND_GEMM;
  command.gemm = gemmDetail(gemm);
  command.rate =
      rateOf(gemm.getUnit(), static_cast<trainc_dtype>(command.gemm->a_type),
             /*update=*/false);
  command.label = ("gemm " + Twine(gemm.getM()) + "x" + Twine(gemm.getN()) +
                   "x" + Twine(gemm.getK()))
                      .str();
  if (gemm.getEpilogue() != Epilogue::none)
    command.label += " " + stringifyEpilogue(gemm.getEpilogue()).str();
  if (gemm.getBiasGradient() != BiasGradient::none)
    command.label += " bias_gradient";
  command.flops = flopsOf(gemm.countWork(), gemm.getUnit());
  uint32_t access =
      gemm.accumulates() ? TRAINC_READ | TRAINC_WRITE : TRAINC_WRITE;
  command.operands = {operandOf(entry, gemm.getLhs(), TRAINC_READ),
                      operandOf(entry, gemm.getRhs(), TRAINC_READ),
                      operandOf(entry, gemm.getMain(), access)};
  for (Value read : {Value(gemm.getBias()), Value(gemm.getAt())})
    if (read)
      command.operands.push_back(operandOf(entry, read, TRAINC_READ));
  for (Value written : {gemm.getSecond(), gemm.getSums()})
    if (written)
      command.operands.push_back(operandOf(entry, written, TRAINC_WRITE));
  return command;
}

static_assert(equal(ConvolutionKind::forward, TRAINC_CONVOLUTION_FORWARD) &&
              equal(ConvolutionKind::input_gradient,
                    TRAINC_CONVOLUTION_INPUT_GRADIENT) &&
              equal(ConvolutionKind::weight_gradient,
                    TRAINC_CONVOLUTION_WEIGHT_GRADIENT));

static trainc_convolution_detail convolutionDetail(ConvolutionOp op) {
  trainc_convolution_detail detail{};
  auto dtype = [](Value value) {
    return getDType(cast<ShapedType>(value.getType()).getElementType());
  };
  ShapedType input = op.getInputType(), weight = op.getWeightType();
  ShapedType output = op.getOutputType();
  detail.kind = static_cast<uint32_t>(op.getKind());
  detail.type = dtype(op.getLhs());
  detail.result_type = dtype(op.getMain());
  detail.accumulate = op.getAccumulate();
  detail.back_end = static_cast<uint32_t>(op.getPlanAttr().getBackEnd());
  detail.tiles = op.getPlanAttr().getTiles();
  detail.batch = input.getDimSize(0);
  detail.groups = op.getGroups();
  detail.channels = weight.getDimSize(1);
  detail.outputs = weight.getDimSize(0) / detail.groups;
  detail.height = input.getDimSize(2);
  detail.width = input.getDimSize(3);
  detail.out_h = output.getDimSize(2);
  detail.out_w = output.getDimSize(3);
  detail.window_h = weight.getDimSize(2);
  detail.window_w = weight.getDimSize(3);
  detail.stride_h = op.getStrides()[0];
  detail.stride_w = op.getStrides()[1];
  detail.dilation_h = op.getDilations()[0];
  detail.dilation_w = op.getDilations()[1];
  detail.low_h = op.getPadding()[0];
  detail.low_w = op.getPadding()[2];
  return detail;
}

CommandRow Gatherer::commandOf(EntryRow &entry, ConvolutionOp op) {
  CommandRow command;
  command.kind = TRAINC_COMMAND_CONVOLUTION;
  command.convolution = convolutionDetail(op);
  const trainc_convolution_detail &detail = *command.convolution;
  command.rate = rateOf(op.getUnit(), static_cast<trainc_dtype>(detail.type),
                        /*update=*/false);
  command.label =
      ("convolution " + Twine(stringifyConvolutionKind(op.getKind())) + " " +
       Twine(detail.window_h) + "x" + Twine(detail.window_w) + " " +
       Twine(detail.channels) + " to " + Twine(detail.outputs))
          .str();
  command.flops = flopsOf(op.countWork(), op.getUnit());
  uint32_t access =
      op.getAccumulate() ? TRAINC_READ | TRAINC_WRITE : TRAINC_WRITE;
  command.operands = {operandOf(entry, op.getLhs(), TRAINC_READ),
                      operandOf(entry, op.getRhs(), TRAINC_READ),
                      operandOf(entry, op.getOut(), access)};
  return command;
}

CommandRow Gatherer::commandOf(EntryRow &entry, StartOp start, uint32_t phase) {
  CommandRow command;
  trainc_collective_detail detail{};
  detail.phase = phase;
  detail.axes = maskOf(start.getAxes());
  MemRefType type = start.getOut().getType();
  detail.dtype = getDType(type.getElementType());
  detail.scalar = type.getRank() == 0;
  if (auto pieces = start.getPieceOf())
    detail.piece_axes = maskOf(*pieces);
  switch (start.getCollective()) {
  case Collective::all_reduce:
    command.kind = TRAINC_COMMAND_ALL_REDUCE;
    break;
  case Collective::reduce_scatter:
    command.kind = TRAINC_COMMAND_REDUCE_SCATTER;
    break;
  case Collective::all_gather:
    command.kind = TRAINC_COMMAND_ALL_GATHER;
  }
  if (start.getInput())
    command.operands = {operandOf(entry, start.getInput(), TRAINC_READ),
                        operandOf(entry, start.getOut(), TRAINC_WRITE)};
  else
    command.operands = {
        operandOf(entry, start.getOut(), TRAINC_READ | TRAINC_WRITE)};
  command.label = stringifyCollective(start.getCollective()).str();
  command.collective = detail;
  return command;
}

/// To `target`, from its element `offset` on.
void Gatherer::addCopy(EntryRow &entry, std::vector<CommandRow> &commands,
                       Value source, Value target, int64_t offset) {
  CommandRow command;
  command.kind = TRAINC_COMMAND_COPY;
  command.label = "copy";
  trainc_operand from = operandOf(entry, source, TRAINC_READ);
  trainc_operand to = operandOf(entry, target, TRAINC_WRITE);
  to.offset +=
      offset * nn::getElementBytes(getElementTypeOrSelf(target.getType()));
  to.bytes = from.bytes;
  command.operands = {from, to};
  commands.push_back(std::move(command));
}

/// Of what was not made in its place.
void Gatherer::addCopies(EntryRow &entry, std::vector<CommandRow> &commands,
                         FlattenOp flat) {
  for (auto [input, offset] : llvm::zip(flat.getInputs(), flat.getOffsets())) {
    addCopy(entry, commands, input, flat.getOut(), offset);
    ArrayRef<trainc_operand> operands = commands.back().operands;
    if (operands[0].base == operands[1].base &&
        operands[0].offset == operands[1].offset)
      commands.pop_back();
  }
}

void Gatherer::gatherList(EntryRow &entry, ListOp list) {
  std::vector<CommandRow> commands;
  entry.workspaceBytes =
      std::max<uint64_t>(entry.workspaceBytes, list.getWorkspace().value_or(0));
  entry.aliveBytes =
      std::max<uint64_t>(entry.aliveBytes, list.getAlive().value_or(0));
  if (auto again = list->getAttrOfType<DictionaryAttr>("recomputed")) {
    // `first` and `next` are alike, and other lists are short.
    entry.recomputed = std::max<uint64_t>(
        entry.recomputed, again.getAs<IntegerAttr>("values").getInt());
    entry.savedBytes = std::max<uint64_t>(
        entry.savedBytes, again.getAs<IntegerAttr>("bytes_saved").getInt());
    entry.recomputeTime = std::max(
        entry.recomputeTime, again.getAs<FloatAttr>("time").getValueAsDouble());
  }
  for (Operation &op : list.getBody().front()) {
    size_t before = commands.size();
    if (auto launch = dyn_cast<LaunchOp>(op)) {
      commands.push_back(commandOf(entry, list, launch));
    } else if (auto gemm = dyn_cast<GemmOp>(op)) {
      commands.push_back(commandOf(entry, gemm));
    } else if (auto convolution = dyn_cast<ConvolutionOp>(op)) {
      commands.push_back(commandOf(entry, convolution));
    } else if (auto start = dyn_cast<StartOp>(op)) {
      commands.push_back(commandOf(entry, start,
                                   isWaitedForAtOnce(start)
                                       ? TRAINC_COLLECTIVE_WHOLE
                                       : TRAINC_COLLECTIVE_START));
    } else if (auto wait = dyn_cast<WaitOp>(op)) {
      StartOp start = getStart(wait);
      if (wait.getPending() || !isWaitedForAtOnce(start))
        commands.push_back(commandOf(entry, start, TRAINC_COLLECTIVE_WAIT));
    } else if (auto copy = dyn_cast<CopyOp>(op)) {
      addCopy(entry, commands, copy.getSource(), copy.getTarget());
    } else if (auto flat = dyn_cast<FlattenOp>(op)) {
      addCopies(entry, commands, flat);
    }
    for (CommandRow &command : llvm::drop_begin(commands, before))
      command.location = describe(op.getLoc());
  }
  SmallVector<trainc_list_kind> kinds{TRAINC_LIST_APPLY};
  if (list.getKind() == ListKind::next)
    kinds = {TRAINC_LIST_NEXT};
  else if (list.getKind() != ListKind::apply)
    kinds = {TRAINC_LIST_FIRST};
  if (list.getKind() == ListKind::merge && entry.accumulate > 1)
    kinds.push_back(TRAINC_LIST_NEXT);
  for (trainc_list_kind kind : kinds)
    llvm::append_range(entry.lists[kind], commands);
}
