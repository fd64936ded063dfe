//===- apart.cpp - What a caller lends overlaps nothing else --------------===//

#include "core/trainer.h"

using namespace trainc;

/// Do `bytes` bytes from `a` on and `others` bytes from `b` on overlap?
static bool overlap(const void *a, uint64_t bytes, const void *b,
                    uint64_t others) {
  auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + others && y < x + bytes;
}

bool trainc::isGradientMemory(const State &state, const void *data,
                              uint64_t bytes) {
  for (size_t i = 0; i < state.arenas.size(); ++i) {
    uint32_t role = state.arenas[i].role;
    if ((role == TRAINC_ROLE_GRADIENT || role == TRAINC_ROLE_MERGED) &&
        overlap(data, bytes, state.pages[i].data(), state.arenas[i].bytes))
      return true;
  }
  return false;
}

bool trainc::isOwnGradient(const trainc_trainer *trainer,
                           const trainc_port &port, const void *data) {
  if (!port.gradient)
    return false;
  const trainc_tensor &tensor = trainer->state.tensors[port.gradient - 1];
  Part part = partOf(trainer, tensor);
  return part.data == data &&
         part.count * trainc_dtype_size(tensor.dtype) == port.bytes;
}

/// Whether a command of the entry has memory of the trainer at `data` as an operand, for such
/// an access. On a GPU the caller's memory is copied.
static bool usesMemory(const trainc_trainer *trainer, uint32_t entry,
                       const void *data, uint64_t bytes, uint32_t access) {
  const EntryState &state = trainer->entries[entry];
  bool isOurs = false;
  for (size_t i = 0; i < trainer->state.arenas.size() && !trainer->gpu; ++i)
    isOurs |= overlap(data, bytes, trainer->state.pages[i].data(),
                      trainer->state.arenas[i].bytes);
  if (!isOurs)
    return false;
  for (const Array<BoundCommand> &list : state.lists)
    for (const BoundCommand &command : list)
      for (uint32_t i = 0; i < command.source->num_operands; ++i) {
        const trainc_operand &x = command.source->operands[i];
        if (x.base < trainer->d->num_arenas && (x.access & access) &&
            overlap(data, bytes,
                    static_cast<char *>(state.bases[x.base]) + x.offset,
                    x.bytes))
          return true;
      }
  return false;
}

/// Checks that what the caller has lent for an output is used for nothing else.
static trainc_status checkOutput(const trainc_trainer *trainer, uint32_t entry,
                                 uint32_t output) {
  const trainc_entry &e = trainer->d->entries[entry];
  void *const *ports = &trainer->entries[entry].ports[e.num_inputs];
  if (!ports[output])
    return TRAINC_OK;
  const trainc_port &port = e.outputs[output];
  for (uint32_t i = 0; i < output; ++i)
    if (ports[i] &&
        overlap(ports[i], e.outputs[i].bytes, ports[output], port.bytes))
      return fail(TRAINC_INVALID_ARGUMENT,
                  "outputs '%s' and '%s' of entry '%s' overlap in memory; "
                  "expected memory of its own for each",
                  e.outputs[i].name, port.name, e.name);
  if (usesMemory(trainer, entry, ports[output], port.bytes,
                 TRAINC_READ | TRAINC_WRITE))
    return fail(TRAINC_INVALID_ARGUMENT,
                "output '%s' of entry '%s' lies in memory of the trainer that "
                "the entry uses; expected other memory",
                port.name, e.name);
  return TRAINC_OK;
}

/// Inputs are read until a run ends.
trainc_status trainc::checkApart(trainc_trainer *trainer, uint32_t entry) {
  const trainc_entry &e = trainer->d->entries[entry];
  EntryState &state = trainer->entries[entry];
  for (uint32_t i = 0; i < e.num_inputs; ++i)
    for (uint32_t k = 0; k < e.num_outputs; ++k) {
      void *output = state.ports[e.num_inputs + k];
      if (!trainer->gpu)
        output = state.bases[trainer->d->num_arenas + e.num_inputs + k];
      if (output && overlap(state.ports[i], e.inputs[i].bytes, output,
                            e.outputs[k].bytes))
        return fail(TRAINC_INVALID_ARGUMENT,
                    "input '%s' and output '%s' of entry '%s' overlap in "
                    "memory; expected memory of its own for each",
                    e.inputs[i].name, e.outputs[k].name, e.name);
    }
  for (uint32_t i = 0; i < e.num_inputs; ++i)
    if (usesMemory(trainer, entry, state.ports[i], e.inputs[i].bytes,
                   TRAINC_WRITE) &&
        !isOwnGradient(trainer, e.inputs[i], state.ports[i]))
      return fail(TRAINC_INVALID_ARGUMENT,
                  "input '%s' of entry '%s' lies in memory of the trainer that "
                  "the entry writes; expected other memory",
                  e.inputs[i].name, e.name);
  for (uint32_t k = 0; k < e.num_outputs; ++k)
    TRAINC_TRY(checkOutput(trainer, entry, k));
  state.apart = true;
  return TRAINC_OK;
}
