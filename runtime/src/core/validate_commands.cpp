//===- validate_commands.cpp - Checking an artifact's commands ------------===//

#include "core/ranks.h"
#include "core/validator.h"
#include "cpu/convolution.h"
#include "cpu/gemm.h"
#include "cuda/products.h"

using namespace trainc;

static bool sameRanges(const trainc_command &x, const trainc_command &y) {
  bool equal = x.kind == y.kind && x.num_operands == y.num_operands;
  for (uint32_t i = 0; equal && i < x.num_operands; ++i)
    equal = x.operands[i].base == y.operands[i].base &&
            x.operands[i].offset == y.operands[i].offset &&
            x.operands[i].bytes == y.operands[i].bytes;
  return equal;
}

/// What `entry` starts from list `first` to list `last`, in steps of `step`, it waits for
/// there, in the order of the starts.
trainc_status Validator::checkPhases(const trainc_entry &entry, int first,
                                     int last, int step) {
  Array<const trainc_command *> started;
  size_t awaited = 0;
  for (int list = first; list <= last; list += step)
    for (uint64_t i = 0; i < entry.lists[list].count; ++i) {
      const trainc_command &command = entry.lists[list].commands[i];
      if (!isCollective(command.kind))
        continue;
      uint32_t phase =
          static_cast<const trainc_collective_detail *>(command.detail)->phase;
      if (phase == TRAINC_COLLECTIVE_START)
        started.push(&command);
      else if (phase == TRAINC_COLLECTIVE_WAIT &&
               (awaited == started.size() ||
                !sameRanges(*started[awaited++], command)))
        return bad("collective '%s' of entry '%s' waits for what was not "
                   "started next",
                   command.label ? command.label : "?", entry.name);
      if (started.size() - awaited > maxPending)
        return bad("entry '%s' starts more than %u collectives before it "
                   "waits for one",
                   entry.name, maxPending);
    }
  if (awaited != started.size())
    return bad("collective '%s' of entry '%s' is started and not waited for",
               started[awaited]->label ? started[awaited]->label : "?",
               entry.name);
  return TRAINC_OK;
}

/// Nothing is under way between two micro-steps. In a window of one the update may wait for
/// what the micro-step before it started.
trainc_status Validator::checkPhases(const trainc_entry &entry) {
  if (entry.kind == TRAINC_ENTRY_STEP && entry.accumulate == 1)
    return checkPhases(entry, TRAINC_LIST_FIRST, TRAINC_LIST_APPLY,
                       TRAINC_LIST_APPLY - TRAINC_LIST_FIRST);
  for (int list = 0; list < TRAINC_NUM_LISTS; ++list)
    TRAINC_TRY(checkPhases(entry, list, list, 1));
  return TRAINC_OK;
}

trainc_status Validator::checkOperand(const trainc_entry &entry,
                                      const trainc_command &command,
                                      const trainc_operand &operand) {
  uint32_t input = operand.base - d.num_arenas;
  uint32_t output = input - entry.num_inputs;
  uint64_t bytes = 0;
  bool known = true;
  if (operand.base < d.num_arenas)
    bytes = d.arenas[operand.base].bytes;
  else if (input < entry.num_inputs)
    bytes = entry.inputs[input].bytes;
  else if (output < entry.num_outputs)
    bytes = entry.outputs[output].bytes;
  else
    known = false;
  bool written = (operand.access & TRAINC_WRITE) != 0;
  uint64_t size = trainc_dtype_size(operand.dtype);
  if (!known || !size || operand.offset % size || operand.offset > bytes ||
      operand.bytes > bytes - operand.offset ||
      (written && operand.base >= d.num_arenas && input < entry.num_inputs))
    return bad("an operand of '%s' in entry '%s' is outside its memory",
               command.label ? command.label : "?", entry.name);
  return TRAINC_OK;
}

trainc_status Validator::checkCommand(const trainc_entry &entry,
                                      const trainc_command &command) {
  const char *label = command.label ? command.label : "?";
  if (command.num_operands && !command.operands)
    return bad("'%s' in entry '%s' has no operands", label, entry.name);
  for (uint32_t i = 0; i < command.num_operands; ++i)
    TRAINC_TRY(checkOperand(entry, command, command.operands[i]));
  if (command.rate >= TRAINC_NUM_RATES)
    return bad("'%s' in entry '%s' has an unknown rate", label, entry.name);
  switch (command.kind) {
  case TRAINC_COMMAND_LAUNCH:
    if (command.kernel >= d.num_kernels || command.tiles < 0 ||
        command.tiles > INT32_MAX)
      return bad("launch '%s' of entry '%s'", label, entry.name);
    return TRAINC_OK;
  case TRAINC_COMMAND_GEMM:
    return checkGemm(command);
  case TRAINC_COMMAND_CONVOLUTION:
    return checkConvolution(command);
  case TRAINC_COMMAND_REDUCE_SCATTER:
  case TRAINC_COMMAND_ALL_REDUCE:
  case TRAINC_COMMAND_ALL_GATHER:
    return checkCollective(command);
  case TRAINC_COMMAND_COPY:
    return command.num_operands == 2 &&
                   command.operands[0].bytes == command.operands[1].bytes
               ? TRAINC_OK
               : bad("copy '%s' of entry '%s'", label, entry.name);
  }
  return bad("command kind %u in entry '%s'", command.kind, entry.name);
}

/// One past the last element of a batch of matrices.
static bool extent(int64_t batch, int64_t stride, int64_t rows, int64_t columns,
                   int64_t ld, int64_t size, uint64_t &bytes) {
  int64_t last, part;
  bool empty = batch == 0 || rows == 0 || columns == 0;
  bytes = 0;
  if (empty)
    return true;
  if (stride < 0 || __builtin_mul_overflow(batch - 1, stride, &last) ||
      ld < columns || __builtin_mul_overflow(rows - 1, ld, &part) ||
      __builtin_add_overflow(last, part, &last) ||
      __builtin_add_overflow(last, columns, &last) ||
      __builtin_mul_overflow(last, size, &last))
    return false;
  bytes = static_cast<uint64_t>(last);
  return true;
}

trainc_status Validator::checkGemm(const trainc_command &command) {
  const char *label = command.label ? command.label : "?";
  auto *g = static_cast<const trainc_gemm_detail *>(command.detail);
  if (!g || command.num_operands != gemmOperandCount(*g) ||
      command.operands[0].dtype != g->a_type ||
      command.operands[1].dtype != g->b_type ||
      command.operands[2].dtype != g->c_type)
    return bad("gemm '%s' has no detail or other operands", label);
  int64_t limit = INT32_MAX; // what the libraries count with
  if (g->m < 0 || g->n < 0 || g->k < 0 || g->batch < 0 || g->m > limit ||
      g->n > limit || g->k > limit || g->lda > limit || g->ldb > limit ||
      g->ldc > limit || g->tile_m < 1 || g->tile_n < 1 ||
      g->a_type > TRAINC_F16 || g->b_type > TRAINC_F16 ||
      g->c_type > TRAINC_F16)
    return bad("gemm '%s' has sizes or types that it must not have", label);
  auto size = [](uint32_t dtype) {
    return static_cast<int64_t>(trainc_dtype_size(dtype));
  };
  const char *reason = nullptr;
  if (d.target == TRAINC_TARGET_CUDA)
    reason = cuda::refuseProduct(*g);
  else
    reason = refuseProduct(*g);
  if (reason)
    return bad("gemm '%s': %s", label, reason);
  uint64_t needed[6] = {};
  bool fits = extent(g->batch, g->stride_a, g->transpose_a ? g->k : g->m,
                     g->transpose_a ? g->m : g->k, g->lda, size(g->a_type),
                     needed[0]) &&
              extent(g->batch, g->stride_b, g->transpose_b ? g->n : g->k,
                     g->transpose_b ? g->k : g->n, g->ldb, size(g->b_type),
                     needed[1]) &&
              extent(g->batch, g->stride_c, g->m, g->n, g->ldc, size(g->c_type),
                     needed[2]);
  uint32_t count = 3;
  auto vector = [&](int64_t elements) {
    needed[count++] = static_cast<uint64_t>(elements * size(g->c_type));
  };
  if (g->has_bias)
    vector(g->n);
  if (g->has_aux)
    needed[count++] = needed[2];
  if (g->bias_gradient)
    vector(g->bias_gradient == TRAINC_BIAS_GRADIENT_A ? g->m : g->n);
  for (uint32_t i = 0; i < count; ++i)
    fits = fits && needed[i] <= command.operands[i].bytes;
  if (!fits)
    return bad("a matrix of gemm '%s' is larger than its operand", label);
  if (gemmTileCount(*g) > INT32_MAX)
    return bad("gemm '%s' has more than 2^31 tiles", label);
  return TRAINC_OK;
}

trainc_status Validator::checkConvolution(const trainc_command &command) {
  const char *label = command.label ? command.label : "?";
  auto *c = static_cast<const trainc_convolution_detail *>(command.detail);
  if (!c || command.num_operands != 3 || command.operands[0].dtype != c->type ||
      command.operands[1].dtype != c->type ||
      command.operands[2].dtype != c->result_type)
    return bad("convolution '%s' has no detail or other operands", label);
  const char *reason = d.target == TRAINC_TARGET_CUDA ? "it is one for CPUs"
                                                      : refuseConvolution(*c);
  if (reason)
    return bad("convolution '%s': %s", label, reason);
  uint64_t needed[3];
  convolutionBytes(*c, needed);
  for (uint32_t i = 0; i < 3; ++i)
    if (needed[i] > command.operands[i].bytes)
      return bad("an array of convolution '%s' is larger than its operand",
                 label);
  return TRAINC_OK;
}
