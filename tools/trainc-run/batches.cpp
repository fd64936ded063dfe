//===- batches.cpp - Filling the inputs of an entry -----------------------===//

#include "batches.h"
#include "core/hash.h"
#include "ranks.h"
#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace trainc::run {

/// Streams of random bits; the shuffle of epoch e has number epochStream + e.
enum : uint64_t { windowStream = 1, generateStream = 2, epochStream = 16 };

static uint64_t elementCount(const trainc_port &port) {
  return port.bytes / trainc_dtype_size(port.dtype);
}

static std::unique_ptr<char, void (*)(void *)> allocate(uint64_t bytes) {
  constexpr uint64_t line = 64;
  uint64_t size = (std::max<uint64_t>(bytes, 1) + line - 1) / line * line;
  char *memory = static_cast<char *>(std::aligned_alloc(line, size));
  if (!memory)
    fail("no memory for an input of %llu bytes",
         static_cast<unsigned long long>(bytes));
  std::fill_n(memory, size, 0);
  return {memory, std::free};
}

Batches::Batches(Model &model, uint32_t entry)
    : model(model), number(entry), entry(model.entry(entry)) {
  for (uint32_t i = 0; i < this->entry.num_inputs; ++i) {
    const trainc_port &port = this->entry.inputs[i];
    inputs.push_back({&port, allocate(port.bytes)});
    for (uint32_t dim = 0; dim < port.rank; ++dim) {
      uint32_t part, parts;
      check(trainc_port_part(model.trainer(), entry, /*output=*/0, i, dim,
                             &part, &parts));
      if (dim == 0) {
        inputs[i].part = part;
        inputs[i].parts = parts;
      } else if (parts > 1) {
        fail("input '%s' of entry '%s' is split along dimension %u: data are "
             "divided by examples only, along dimension 0",
             port.name, this->entry.name, dim);
      }
    }
    std::string_view name = port.name;
    inputs[i].isMask = name == "weights" || name == "mask";
    check(trainc_bind_input(model.trainer(), entry, i, inputs[i].memory.get(),
                            port.bytes));
  }
  // Targets are ignored where all checks of their input let them.
  std::vector<bool> isChecked(inputs.size());
  for (uint32_t i = 0; i < this->entry.num_checks; ++i) {
    const trainc_index_check &range = this->entry.checks[i];
    std::optional<int64_t> ignore;
    if (range.has_ignore)
      ignore = range.ignore;
    if (isChecked[range.input] && inputs[range.input].ignore != ignore)
      ignore.reset();
    inputs[range.input].ignore = ignore;
    isChecked[range.input] = true;
  }
}

Batches::Batches(Model &model, uint32_t entry,
                 const std::vector<DataArgument> &files, Order order)
    : Batches(model, entry) {
  assign(files);
  compareData();
  findBatchSize();
  findLength(order);
}

/// Is element `e` of the check's input one of those that it is about?
static bool covers(const trainc_index_check &check, uint64_t e) {
  if (!check.run)
    return true;
  if (e < check.begin)
    return false;
  uint64_t at = e - check.begin, row = check.stride ? at / check.stride : 0;
  return row < check.rows && at - row * check.stride < check.run;
}

/// Low and high of what all checks let element `e` of an input of integers be.
static std::pair<int64_t, int64_t> rangeOf(const trainc_entry &entry,
                                           uint32_t input, uint64_t e) {
  std::pair<int64_t, int64_t> range = {INT64_MIN, INT64_MAX};
  for (uint32_t c = 0; c < entry.num_checks; ++c)
    if (const trainc_index_check &check = entry.checks[c];
        check.input == input && covers(check, e))
      range = {std::max(range.first, check.low),
               std::min(range.second, check.high)};
  return range.second == INT64_MAX ? std::pair<int64_t, int64_t>(0, 1) : range;
}

Batches Batches::generate(Model &model, uint32_t entry) {
  Batches result(model, entry);
  result.generated = true;
  result.batch = 1;
  for (const Input &input : result.inputs)
    if (input.port->rank > 0) {
      result.batch = input.rows();
      break;
    }
  for (uint32_t i = 0; i < result.inputs.size(); ++i) {
    Input &input = result.inputs[i];
    uint32_t dtype = input.port->dtype;
    bool isFloat = elementType(dtype).isFloat();
    for (uint64_t e = 0; e < elementCount(*input.port); ++e) {
      // Floats are 0 or 1: in the range of images, weights and probabilities.
      auto [low, high] = isFloat ? std::pair<int64_t, int64_t>(0, 2)
                                 : rangeOf(result.entry, i, e);
      storeNumber(dtype, input.memory.get(), e,
                  low + static_cast<int64_t>(
                            randomBelow(static_cast<uint64_t>(high - low),
                                        model.seed(), generateStream + i, e)));
    }
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Which file feeds which input
//===----------------------------------------------------------------------===//

std::string Batches::inputList() const {
  std::string list;
  for (const Input &input : inputs)
    list += format("%s%s (%s)", list.empty() ? "" : ", ", input.port->name,
                   shapeText(*input.port).c_str());
  return list.empty() ? "none" : list;
}

void Batches::assign(const std::vector<DataArgument> &arguments) {
  for (const DataArgument &argument : arguments) {
    files.push_back(
        std::make_unique<std::vector<FileArray>>(readArrays(argument.path)));
    if (argument.name.empty())
      assignUnnamed(argument.path);
    else
      assignNamed(argument);
  }
  for (const Input &input : inputs)
    if (!input.array && !input.isMask)
      fail("entry '%s' has no data for its input '%s' (%s)", entry.name,
           input.port->name, shapeText(*input.port).c_str());
  for (const Input &input : inputs)
    if (stream && input.array && input.array != stream && !input.isConstant)
      fail("input '%s' has data by examples, %s, but '%s' is a stream of "
           "tokens: expects examples of %llu tokens there, or no data for '%s'",
           input.port->name, input.array->text().c_str(), stream->path.c_str(),
           static_cast<unsigned long long>(window), input.port->name);
}

/// NAME=FILE: the array of a .npy file, or NAME in a .safetensors file.
void Batches::assignNamed(const DataArgument &argument) {
  const char *name = argument.name.c_str();
  auto input = std::ranges::find_if(
      inputs, [&](const Input &i) { return i.port->name == argument.name; });
  if (input == inputs.end())
    fail("entry '%s' has no input '%s'; its inputs: %s", entry.name, name,
         inputList().c_str());
  for (const FileArray &array : *files.back())
    if (array.name.empty() || array.name == argument.name)
      return assignArray(*input, array);
  fail("'%s' has no tensor '%s'", argument.path.c_str(), name);
}

void Batches::assignUnnamed(const std::string &path) {
  const std::vector<FileArray> &arrays = *files.back();
  std::vector<Input *> needed;
  for (Input &input : inputs)
    if (!input.isMask)
      needed.push_back(&input);

  if (arrays.size() != 1 || !arrays[0].name.empty()) { // .safetensors
    bool used = false;
    for (Input &input : inputs)
      for (const FileArray &array : arrays)
        if (array.name == input.port->name) {
          assignArray(input, array);
          used = true;
        }
    if (!used)
      fail("'%s' has no tensor with the name of an input; the inputs of entry "
           "'%s': %s",
           path.c_str(), entry.name, inputList().c_str());
    return;
  }

  const FileArray &array = arrays[0];
  auto isTokens = [](const Input *input) {
    return input->port->rank == 2 &&
           elementType(input->port->dtype).isInteger();
  };
  bool same = needed.size() == 2 && isTokens(needed[0]) &&
              isTokens(needed[1]) &&
              std::equal(needed[0]->port->dims, needed[0]->port->dims + 2,
                         needed[1]->port->dims);
  if (array.dims.size() == 1 && array.type.isInteger() &&
      (same || (needed.size() == 1 && isTokens(needed[0]))))
    return assignStream(array, *needed[0], same ? needed[1] : nullptr);
  if (needed.size() == 1)
    return assignArray(*needed[0], array);
  fail("which input is '%s' (%s) for? Expects --data NAME=FILE; the inputs of "
       "entry '%s': %s",
       path.c_str(), array.shape().c_str(), entry.name, inputList().c_str());
}

void Batches::assignArray(Input &input, const FileArray &array) {
  if (input.array)
    fail("input '%s' has data from both %s and %s", input.port->name,
         input.array->text().c_str(), array.text().c_str());
  if (!isConvertible(array.type, input.port->dtype))
    fail("input '%s' is %s: expects %s elements, %s has %s", input.port->name,
         shapeText(*input.port).c_str(),
         elementType(input.port->dtype).name().c_str(), array.text().c_str(),
         array.shape().c_str());
  input.array = &array;
  if (input.port->rank == 0) {
    if (array.elements() != 1)
      fail("input '%s' is one value, %s has %s", input.port->name,
           array.text().c_str(), array.shape().c_str());
    input.isConstant = true;
    copy(input, 0, 1, 0);
    return;
  }
  if (array.dims.empty())
    fail("input '%s' is %s, %s is one value", input.port->name,
         shapeText(*input.port).c_str(), array.text().c_str());
  input.rowElements = 1;
  for (size_t i = 1; i < array.dims.size(); ++i)
    input.rowElements *= static_cast<uint64_t>(array.dims[i]);
}

void Batches::assignStream(const FileArray &array, Input &tokens,
                           Input *targets) {
  if (tokens.array || (targets && targets->array))
    fail("input '%s' has data from two files", tokens.port->name);
  stream = &array;
  batch = tokens.rows();
  window = static_cast<uint64_t>(tokens.port->dims[1]);
  if (!batch || !window)
    fail("input '%s' of entry '%s' holds no tokens", tokens.port->name,
         entry.name);
  tokens.array = stream;
  tokens.rowElements = window;
  if (targets) {
    targets->array = stream;
    targets->rowElements = window;
    targets->shift = 1;
  }
  uint64_t need = window + (targets ? 1 : 0);
  if (array.elements() < need)
    fail("'%s' has %llu tokens: entry '%s' needs %llu", array.path.c_str(),
         static_cast<unsigned long long>(array.elements()), entry.name,
         static_cast<unsigned long long>(need));
}

/// Ranks must read the same: a sample of each array stands for it.
void Batches::compareData() {
  if (!communicator())
    return;
  constexpr uint64_t sample = 1 << 16;
  uint64_t hash = hashStart;
  for (const auto &arrays : files)
    for (const FileArray &array : *arrays) {
      uint64_t bytes = array.elements() * array.type.bytes;
      hash = hashBytes(hash, array.dims.data(), array.dims.size() * 8);
      for (uint64_t at : {UINT64_C(0), bytes / 2, bytes})
        if (uint64_t begin = at > sample ? at - sample : 0; begin < bytes)
          hash = hashBytes(hash, array.data + begin,
                           std::min(sample, bytes - begin));
    }
  agree("the data", hash);
}

//===----------------------------------------------------------------------===//
// How many examples there are
//===----------------------------------------------------------------------===//

/// The batch is the first dimension of the first input whose other dimensions
/// hold one example. Another input may be flat, as targets of batch * tokens.
void Batches::findBatchSize() {
  const Input *counts = nullptr; // whose file says how many examples there are
  for (const Input &input : inputs) {
    if (!input.array || input.isConstant || stream)
      continue;
    uint64_t rows = input.rows();
    if (!batch && rows &&
        elementCount(*input.port) * input.parts == rows * input.rowElements)
      batch = rows;
    if (!counts)
      counts = &input;
    else if (input.array->dims[0] != counts->array->dims[0])
      fail("%s has %lld examples, %s has %lld", counts->array->text().c_str(),
           static_cast<long long>(counts->array->dims[0]),
           input.array->text().c_str(),
           static_cast<long long>(input.array->dims[0]));
  }
  length = counts ? static_cast<uint64_t>(counts->array->dims[0]) : 1;
  for (Input &input : inputs) {
    if (input.isConstant)
      continue;
    uint64_t count = elementCount(*input.port) * input.parts;
    if (!input.array && batch) // a mask without data
      input.rowElements = count / batch;
    if (input.rowElements * batch == count)
      continue;
    if (!input.array)
      fail("input '%s' is %s: expects a multiple of the %llu examples of a "
           "batch",
           input.port->name, shapeText(*input.port).c_str(),
           static_cast<unsigned long long>(batch));
    std::string rest;
    for (uint32_t i = 1; i < input.port->rank; ++i)
      rest += "x" + std::to_string(input.port->dims[i]);
    fail("input '%s' is %s: expects N%s elements, %s has %s", input.port->name,
         shapeText(*input.port).c_str(), rest.c_str(),
         input.array->text().c_str(), input.array->shape().c_str());
  }
  if (!batch) // only constants, or no inputs at all
    batch = 1;
}

/// Can rows be missing without a mask, since every output has a row for every
/// example?
bool Batches::rowsAreIndependent() const {
  if (entry.kind != TRAINC_ENTRY_EVAL)
    return false;
  for (uint32_t i = 0; i < entry.num_outputs; ++i) {
    const trainc_port &port = entry.outputs[i];
    uint32_t part, parts = 1;
    if (port.rank != 0)
      check(trainc_port_part(model.trainer(), number, /*output=*/1, i,
                             /*dimension=*/0, &part, &parts));
    if (port.rank == 0 || static_cast<uint64_t>(port.dims[0]) * parts != batch)
      return false;
  }
  return true;
}

void Batches::findLength(Order order) {
  random = order == Order::Random;
  maskable = rowsAreIndependent();
  for (const Input &input : inputs)
    maskable |= input.isMask || (input.array && input.ignore);
  if (stream) {
    uint64_t shift = 0;
    bool cut = false; // can a window end before its last token?
    for (const Input &input : inputs) {
      shift = std::max(shift, input.shift);
      cut |= input.shift && input.ignore;
    }
    uint64_t usable = stream->elements() - shift;
    length = cut ? (usable + window - 1) / window : usable / window;
    if (random)
      return;
  }
  if (length == 0)
    fail("the data of entry '%s' has no examples", entry.name);
  if (maskable || length % batch == 0)
    return;
  uint64_t rest = length % batch;
  if (length < batch)
    fail("entry '%s' has batches of %llu examples, the data has %llu; a short "
         "batch needs a target with an ignored index, or an input 'weights' or "
         "'mask'",
         entry.name, static_cast<unsigned long long>(batch),
         static_cast<unsigned long long>(length));
  note(
      "entry '%s' cannot mask a short batch: leaving out %llu of %llu examples "
      "in every epoch",
      entry.name, static_cast<unsigned long long>(rest),
      static_cast<unsigned long long>(length));
  length -= rest;
}

//===----------------------------------------------------------------------===//
// Filling
//===----------------------------------------------------------------------===//

/// Which row of the files, or which token of the stream, example number
/// `example` of the whole training begins at.
uint64_t Batches::source(uint64_t example) {
  if (stream && random) {
    uint64_t need = window;
    for (const Input &input : inputs)
      need = std::max(need, input.array == stream ? window + input.shift : 0);
    return randomBelow(stream->elements() - need + 1, model.seed(),
                       windowStream, example);
  }
  uint64_t epoch = example / length, index = example % length;
  if (stream)
    return index * window;
  if (!random)
    return index;
  if (epoch != shuffledEpoch) {
    uint64_t all = length;
    for (const Input &input : inputs)
      if (input.array && !input.isConstant)
        all = static_cast<uint64_t>(input.array->dims[0]);
    permutation.resize(all);
    std::iota(permutation.begin(), permutation.end(), 0);
    for (uint64_t i = all; i-- > 1;) // Fisher and Yates
      std::swap(permutation[i],
                permutation[randomBelow(i + 1, model.seed(),
                                        epochStream + epoch, i)]);
    shuffledEpoch = epoch;
  }
  return permutation[index];
}

uint64_t Batches::fill(uint64_t &position, uint64_t step) {
  currentStep = step;
  if (generated)
    return batch;
  uint64_t rows = batch;
  if (!(stream && random))
    rows = std::min(rows, length - position % length);
  if (rows < batch && !maskable) { // resumed with another size of batches
    note("leaving out the last %llu examples of the epoch, which do not fill a "
         "batch of %llu",
         static_cast<unsigned long long>(rows),
         static_cast<unsigned long long>(batch));
    position += rows;
    rows = batch;
  }
  uint64_t first = source(position);
  for (uint64_t row = 0; row < batch; ++row) {
    bool missing = row >= rows;
    uint64_t index = row == 0 || missing ? first : source(position + row);
    for (Input &input : inputs)
      if (!input.isConstant)
        fillRow(input, row, index, missing);
  }
  position += rows;
  return rows;
}

uint64_t Batches::availableTokens(const Input &input, uint64_t start) const {
  uint64_t left = stream->elements() - std::min(stream->elements(), start);
  return std::min(input.rowElements, left);
}

/// A missing row repeats the first one, whose values are in range, but for its
/// targets and mask.
void Batches::fillRow(Input &input, uint64_t row, uint64_t index,
                      bool missing) {
  uint64_t own = batch / input.parts, first = own * input.part;
  if (row < first || row >= first + own)
    return;
  uint64_t to = (row - first) * input.rowElements;
  uint32_t dtype = input.port->dtype;
  uint64_t present = 0; // elements that are copied
  if (input.array && !(missing && (input.ignore || input.isMask))) {
    uint64_t begin =
        input.array == stream ? index + input.shift : index * input.rowElements;
    present = input.array == stream ? availableTokens(input, begin)
                                    : input.rowElements;
    copy(input, begin, present, to);
  } else if (!input.array && !missing) {
    present = input.rowElements;
    for (uint64_t i = 0; i < present; ++i)
      storeNumber(dtype, input.memory.get(), to + i, 1);
  }
  // The end of a stream, ignored targets, a mask: token 0 is in range.
  for (uint64_t i = present; i < input.rowElements; ++i)
    storeNumber(dtype, input.memory.get(), to + i, input.ignore.value_or(0));
}

void Batches::copy(Input &input, uint64_t begin, uint64_t count, uint64_t to) {
  const FileArray &array = *input.array;
  uint64_t size = trainc_dtype_size(input.port->dtype);
  Problem problem = copyElements(array, begin, count, input.port->dtype,
                                 input.memory.get() + to * size);
  if (problem.kind == Problem::None)
    return;
  std::string where;
  if (currentStep)
    where = format("step %llu: ", static_cast<unsigned long long>(currentStep));
  where += format("element %llu of %s",
                  static_cast<unsigned long long>(problem.element),
                  array.text().c_str());
  if (!stream && input.rowElements)
    where += format(
        ", in example %llu,",
        static_cast<unsigned long long>(problem.element / input.rowElements));
  if (problem.kind == Problem::NotFinite)
    fail("%s is %s, for input '%s'", where.c_str(), problem.value.c_str(),
         input.port->name);
  fail("%s is %s, which input '%s' (%s) does not hold", where.c_str(),
       problem.value.c_str(), input.port->name,
       elementType(input.port->dtype).name().c_str());
}

} // namespace trainc::run
