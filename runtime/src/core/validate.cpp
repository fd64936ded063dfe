//===- validate.cpp - Checking an artifact's tables -----------------------===//

#include "core/pages.h"
#include "core/parts.h"
#include "core/ranks.h"
#include "core/safetensors.h"
#include "core/validator.h"
#include <math.h>

using namespace trainc;

trainc_status trainc::bad(const char *format, ...) {
  Text text;
  va_list arguments;
  va_start(arguments, format);
  text.vformat(format, arguments);
  va_end(arguments);
  return fail(TRAINC_DATA_CORRUPT, "the artifact is damaged: %s", text.c_str());
}

/// A table has rows or no count.
trainc_status Validator::checkPointers() {
  const struct {
    const char *name;
    uint64_t count;
    const void *rows;
  } tables[] = {{"arenas", d.num_arenas, d.arenas},
                {"tensors", d.num_tensors, d.tensors},
                {"scalars", d.num_scalars, d.scalars},
                {"groups", d.num_groups, d.groups},
                {"entries", d.num_entries, d.entries},
                {"kernels", d.num_kernels, d.kernels},
                {"axes", d.num_axes, d.axes},
                {"images", d.num_images, d.images}};
  for (const auto &table : tables)
    if (table.count && !table.rows)
      return bad("it has no table of %s", table.name);
  for (uint32_t i = 0; i < d.num_groups; ++i)
    if (!d.groups[i])
      return bad("group %u has no name", i);
  return TRAINC_OK;
}

/// The ranks that differ in `axes` alone; 0 if there is no such axis.
uint64_t Validator::countRanks(uint32_t axes) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < 32; ++i)
    if (axes >> i & 1) {
      if (i >= d.num_axes)
        return 0;
      count *= d.axes[i].size;
    }
  return count;
}

/// Are the bytes of a split's axes numbers of axes, each of another one? Then there are no
/// more parts than ranks.
bool Validator::haveAxes(uint64_t axes) {
  uint32_t seen = 0;
  for (; axes; axes >>= 8) {
    uint32_t axis = static_cast<uint32_t>(axes & 255) - 1;
    if (axis >= d.num_axes || seen >> axis & 1)
      return false;
    seen |= 1u << axis;
  }
  return true;
}

trainc_status Validator::checkMesh() {
  uint64_t ranks = 1;
  if (d.num_axes > 32)
    return bad("a mesh of %u axes", d.num_axes);
  for (uint32_t i = 0; i < d.num_axes; ++i) {
    if (!d.axes[i].name || d.axes[i].size < 1 || d.axes[i].size > 65536 ||
        (ranks *= d.axes[i].size) > 65536)
      return bad("axis %u of the mesh", i);
  }
  return TRAINC_OK;
}

/// On the processor a kernel is a function, on a GPU a name in all images.
trainc_status Validator::checkKernels() {
  for (uint32_t i = 0; i < d.num_kernels; ++i) {
    const trainc_kernel &kernel = d.kernels[i];
    bool proper = isGpu() ? !kernel.function && kernel.threads >= 1 &&
                                kernel.threads <= 1024
                          : kernel.function && !kernel.threads;
    if (!kernel.name || !proper || kernel.scratch_bytes > INT64_MAX / 4)
      return bad("kernel %u", i);
  }
  for (uint32_t i = 0; i < d.num_images; ++i)
    if (d.images[i].kind > TRAINC_IMAGE_HOST || !d.images[i].data)
      return bad("image %u", i);
  return TRAINC_OK;
}

/// Buckets follow each other, in the whole arena and in what a rank has of it.
trainc_status Validator::checkBuckets(const trainc_arena &arena) {
  uint64_t first = 0, local = 0, size = trainc_dtype_size(arena.dtype);
  if (!arena.num_buckets)
    return TRAINC_OK;
  if (!arena.buckets || !size)
    return bad("arena '%s' has no buckets", arena.name);
  for (uint32_t i = 0; i < arena.num_buckets; ++i) {
    const trainc_bucket &bucket = arena.buckets[i];
    uint64_t pieces = bucket.pieces;
    if (bucket.first != first || bucket.local != local ||
        bucket.bytes > INT64_MAX / 4 - first || !pieces ||
        (pieces > 1 && pieces != countRanks(arena.piece_axes)) ||
        bucket.bytes % (pieces * size))
      return bad("bucket %u of arena '%s'", i, arena.name);
    first += bucket.bytes;
    local += bucket.bytes / pieces;
  }
  return local == arena.bytes
             ? TRAINC_OK
             : bad("the buckets of arena '%s' are not its bytes", arena.name);
}

/// Do `bytes` at `offset` lie in the arena with all pieces, and in one bucket?
static bool liesIn(const trainc_arena &arena, uint64_t offset, uint64_t bytes) {
  if (!arena.num_buckets)
    return offset <= arena.bytes && bytes <= arena.bytes - offset;
  for (uint32_t i = 0; i < arena.num_buckets; ++i) {
    uint64_t end = arena.buckets[i].first + arena.buckets[i].bytes;
    if (offset < end)
      return bytes <= end - offset;
  }
  return false;
}

trainc_status Validator::checkCollective(const trainc_command &command) {
  const char *label = command.label ? command.label : "?";
  auto *c = static_cast<const trainc_collective_detail *>(command.detail);
  uint64_t size = c ? trainc_dtype_size(c->dtype) : 0;
  uint64_t ranks = c ? countRanks(c->axes) : 0;
  uint64_t pieces = c ? countRanks(c->piece_axes) : 0;
  bool gather = command.kind == TRAINC_COMMAND_ALL_GATHER;
  bool inPlace = command.num_operands == 1;
  if (!d.num_axes)
    return bad("collective '%s' in an artifact of one rank", label);
  if (!size || !ranks || !pieces || c->phase > TRAINC_COLLECTIVE_WAIT ||
      (!inPlace && (command.num_operands != 2 || (c->phase && !gather))) ||
      (!gather && c->dtype > TRAINC_F16))
    return bad("collective '%s' has no proper detail or operands", label);
  bool scatter = command.kind == TRAINC_COMMAND_REDUCE_SCATTER;
  uint64_t bytes = command.operands[0].bytes;
  bool fits = bytes % size == 0;
  if (!inPlace) {
    uint64_t whole = command.operands[scatter ? 0 : 1].bytes;
    uint64_t parts = gather || scatter ? ranks : 1;
    fits = fits && whole % parts == 0 &&
           whole / parts == command.operands[scatter ? 1 : 0].bytes;
  } else if (command.kind == TRAINC_COMMAND_ALL_REDUCE) {
    fits = fits && bytes % (pieces * size) == 0;
  } else {
    fits = fits && bytes % (ranks * size) == 0;
  }
  bool arena = !inPlace || command.operands[0].base < d.num_arenas;
  return fits && arena ? TRAINC_OK : bad("a range of collective '%s'", label);
}

trainc_status Validator::checkArenas() {
  if (!d.name || !d.compiler || (!isGpu() && (!d.functions || !d.features)))
    return bad("a text or the function table is missing");
  uint64_t total = 0;
  for (uint32_t i = 0; i < d.num_arenas; ++i) {
    const trainc_arena &arena = d.arenas[i];
    if (!arena.name || arena.bytes > INT64_MAX / 4 - total)
      return bad("arena %u", i);
    total += alignUp(arena.bytes, pageBytes());
    TRAINC_TRY(checkBuckets(arena));
  }
  if (d.scalar_arena >= d.num_arenas || d.workspace_arena >= d.num_arenas ||
      d.scalar_arena == d.workspace_arena)
    return bad("the scalar or workspace arena does not exist");
  return TRAINC_OK;
}

/// Whether `name`, of scalar `i`, is `fixed` behind its window's name.
static bool isNamed(const char *name, uint32_t i, const char *fixed) {
  if (i < TRAINC_NUM_FIXED_SCALARS || !name)
    return name && !strcmp(name, fixed);
  size_t length = strlen(name), tail = strlen(fixed);
  return length > tail + 1 && name[length - tail - 1] == '.' &&
         !strcmp(name + length - tail, fixed);
}

trainc_status Validator::checkScalars() {
  static const char *const fixed[] = {
#define TRAINC_SCALAR(NAME, index, text, init, flags) text,
#include "trainc/step_abi.def"
  };
  int exponent;
  if (d.divisor != 0 && frexp(d.divisor, &exponent) != 0.5)
    return bad("sums of gradients divided by %g", d.divisor);
  if (d.num_windows < 1 ||
      d.num_scalars / TRAINC_NUM_FIXED_SCALARS < d.num_windows ||
      d.arenas[d.scalar_arena].bytes / 8 < d.num_scalars)
    return bad("%u scalars in an arena of %llu bytes", d.num_scalars,
               static_cast<unsigned long long>(d.arenas[d.scalar_arena].bytes));
  for (uint32_t i = 0; i < d.num_scalars; ++i) {
    const char *name = d.scalars[i].name;
    uint32_t number = fixedOf(d, i);
    if (number == TRAINC_NUM_FIXED_SCALARS ? !name
                                           : !isNamed(name, i, fixed[number]))
      return bad("scalar %u is not '%s'", i,
                 number < TRAINC_NUM_FIXED_SCALARS ? fixed[number] : "named");
  }
  return TRAINC_OK;
}

trainc_status Validator::checkSplits(const trainc_tensor &tensor) {
  for (uint32_t i = 0; tensor.splits && i < tensor.rank; ++i) {
    const trainc_split &split = tensor.splits[i];
    if (split.blocks == 0 || tensor.dims[i] < 0 ||
        static_cast<uint64_t>(tensor.dims[i]) % split.blocks != 0 ||
        !haveAxes(split.axes))
      return bad("tensor '%s' is split in a way that is not there",
                 tensor.name);
  }
  return TRAINC_OK;
}

/// The bytes of a rank's part; false on overflow.
bool Validator::partBytesOf(const trainc_tensor &tensor, uint64_t &bytes) {
  bool valid = true;
  bytes = trainc_dtype_size(tensor.dtype);
  for (uint32_t i = 0; i < tensor.rank; ++i) {
    uint64_t size = static_cast<uint64_t>(tensor.dims[i]), parts = 1;
    for (uint64_t axes = tensor.splits ? tensor.splits[i].axes : 0; axes;
         axes >>= 8)
      parts *= d.axes[(axes & 255) - 1].size;
    if (parts > 1)
      size = partSize(size, tensor.splits[i].blocks, parts);
    valid = valid && !__builtin_mul_overflow(bytes, size, &bytes);
  }
  return valid;
}

trainc_status Validator::checkTensors() {
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    const trainc_tensor &tensor = d.tensors[i];
    uint64_t bytes;
    if (!tensor.name || (tensor.role == TRAINC_ROLE_STATE) != !!tensor.state ||
        tensor.role > TRAINC_ROLE_BUFFER)
      return bad("tensor %u has no proper name and role", i);
    bool sized = bytesOf(tensor.dtype, tensor.rank, tensor.dims, bytes);
    if (sized)
      TRAINC_TRY(checkSplits(tensor));
    if (!sized || !partBytesOf(tensor, bytes) || bytes != tensor.bytes ||
        tensor.arena >= d.num_arenas || tensor.arena == d.scalar_arena ||
        tensor.group < -1 ||
        tensor.group >= static_cast<int64_t>(d.num_groups) ||
        !liesIn(d.arenas[tensor.arena], tensor.offset, bytes) ||
        tensor.offset % trainc_dtype_size(tensor.dtype))
      return bad("tensor '%s' does not lie in an arena", tensor.name);
    bool number = tensor.init == TRAINC_INIT_CONSTANT ||
                  tensor.init == TRAINC_INIT_DATA || tensor.dtype <= TRAINC_F16;
    if (tensor.init > TRAINC_INIT_DATA || !number ||
        (tensor.init == TRAINC_INIT_DATA && bytes && !tensor.init_data))
      return bad("tensor '%s' has no proper initial value", tensor.name);
    const trainc_tensor *master =
        tensor.role == TRAINC_ROLE_COMPUTE
            ? findMaster(d.tensors, d.num_tensors, tensor)
            : nullptr;
    if (master && (tensor.dtype > TRAINC_F16 || master->dtype > TRAINC_F16 ||
                   tensor.bytes / trainc_dtype_size(tensor.dtype) !=
                       master->bytes / trainc_dtype_size(master->dtype)))
      return bad("compute copy '%s' does not fit its parameter", tensor.name);
  }
  return TRAINC_OK;
}

/// A checkpoint must be readable: no two of its tensors and scalars have one name, none
/// has that of the header's metadata or of what several ranks save, and all is UTF-8.
trainc_status Validator::checkNames() {
  if (!d.name || !isUtf8(d.name))
    return bad("its name is not UTF-8");
  for (uint32_t i = 0; i < d.num_entries; ++i)
    if (d.entries[i].name && !isUtf8(d.entries[i].name))
      return bad("the name of entry %u is not UTF-8", i);
  Array<char *> names;
  Text name;
  for (uint32_t i = 0; i < d.num_tensors + d.num_scalars; ++i) {
    name.clear();
    if (i >= d.num_tensors)
      name.format("scalar/%s", d.scalars[i - d.num_tensors].name);
    else if (!checkpointName(d, i, name))
      continue;
    names.push(copyText(name.c_str()));
  }
  qsort(names.data(), names.size(), sizeof(char *),
        [](const void *a, const void *b) {
          return strcmp(*static_cast<char *const *>(a),
                        *static_cast<char *const *>(b));
        });
  trainc_status status = TRAINC_OK;
  for (size_t i = 0; i < names.size() && status == TRAINC_OK; ++i)
    if (!isUtf8(names[i]))
      status = bad("the name '%s' in a checkpoint is not UTF-8", names[i]);
    else if (!strcmp(names[i], "__metadata__") ||
             !strncmp(names[i], "rank/", 5))
      status = bad("'%s' is no name for a tensor of a checkpoint", names[i]);
    else if (i && !strcmp(names[i], names[i - 1]))
      status = bad("two tensors or scalars are '%s' in a checkpoint", names[i]);
  for (char *text : names)
    free(text);
  return status;
}

trainc_status Validator::checkPorts(const trainc_entry &entry,
                                    const trainc_port *ports, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t bytes;
    if (!ports[i].name ||
        !bytesOf(ports[i].dtype, ports[i].rank, ports[i].dims, bytes) ||
        bytes != ports[i].bytes)
      return bad("input or output %u of entry '%s'", i, entry.name);
    for (uint32_t k = 0; ports[i].splits && k < ports[i].rank; ++k)
      if (!haveAxes(ports[i].splits[k]))
        return bad("input or output '%s' of entry '%s' is split over an axis "
                   "that is not there, or twice",
                   ports[i].name, entry.name);
    uint64_t gradient = ports[i].gradient;
    if (gradient && (gradient > d.num_tensors ||
                     d.tensors[gradient - 1].role != TRAINC_ROLE_GRADIENT))
      return bad("input or output '%s' of entry '%s' is no gradient",
                 ports[i].name, entry.name);
  }
  return TRAINC_OK;
}

/// Whether the elements that a check is of are some of the input's.
static bool isWithin(const trainc_index_check &check, const trainc_port &port) {
  uint64_t count = port.bytes / trainc_dtype_size(port.dtype), last, end;
  if (!check.run)
    return check.begin == 0;
  return check.rows &&
         !__builtin_mul_overflow(check.rows - 1, check.stride, &last) &&
         !__builtin_add_overflow(last, check.begin, &last) &&
         !__builtin_add_overflow(last, check.run, &end) && end <= count;
}

trainc_status Validator::checkEntry(const trainc_entry &entry) {
  if (!entry.name || entry.kind > TRAINC_ENTRY_EVAL)
    return bad("an entry has no name or kind");
  bool complete = (entry.inputs || !entry.num_inputs) &&
                  (entry.outputs || !entry.num_outputs) &&
                  (entry.checks || !entry.num_checks);
  for (const trainc_command_list &list : entry.lists)
    complete = complete && (list.commands || !list.count);
  if (!complete)
    return bad("entry '%s' lacks a table", entry.name);
  TRAINC_TRY(checkPorts(entry, entry.inputs, entry.num_inputs));
  TRAINC_TRY(checkPorts(entry, entry.outputs, entry.num_outputs));
  for (uint32_t i = 0; i < entry.num_checks; ++i) {
    const trainc_index_check &check = entry.checks[i];
    if (check.input >= entry.num_inputs ||
        entry.inputs[check.input].dtype <= TRAINC_F16 ||
        !isWithin(check, entry.inputs[check.input]))
      return bad("index check %u of entry '%s'", i, entry.name);
  }
  bool step = entry.kind == TRAINC_ENTRY_STEP;
  if (step && entry.window >= d.num_windows)
    return bad("step '%s' is of a window that is not there", entry.name);
  if (step && (entry.accumulate < 1 || !entry.lists[TRAINC_LIST_APPLY].count ||
               (entry.accumulate > 1 && !entry.lists[TRAINC_LIST_NEXT].count)))
    return bad("step '%s' lacks a command list", entry.name);
  for (int list = 0; list < TRAINC_NUM_LISTS; ++list)
    for (uint64_t i = 0; i < entry.lists[list].count; ++i)
      TRAINC_TRY(checkCommand(entry, entry.lists[list].commands[i]));
  return checkPhases(entry);
}

trainc_status trainc::validate(const trainc_descriptor &descriptor) {
  return Validator(descriptor).run();
}
