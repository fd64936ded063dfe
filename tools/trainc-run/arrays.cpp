//===- arrays.cpp - Arrays in .npy and .safetensors files -----------------===//

#include "arrays.h"
#include "core/convert.h"
#include "core/files.h"
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace trainc::run {

std::string ElementType::name() const {
  switch (kind) {
  case BFloat:
    return "bf16";
  case Bool:
    return "bool";
  default:
    return format("%c%u",
                  kind == Float    ? 'f'
                  : kind == Signed ? 'i'
                                   : 'u',
                  8 * bytes);
  }
}

ElementType elementType(uint32_t dtype) {
  uint32_t bytes = static_cast<uint32_t>(trainc_dtype_size(dtype));
  switch (dtype) {
  case TRAINC_F32:
  case TRAINC_F64:
  case TRAINC_F16:
    return {ElementType::Float, bytes};
  case TRAINC_BF16:
    return {ElementType::BFloat, bytes};
  case TRAINC_U8:
    return {ElementType::Unsigned, bytes};
  case TRAINC_BOOL:
    return {ElementType::Bool, bytes};
  default:
    return {ElementType::Signed, bytes};
  }
}

std::string shapeText(const std::vector<int64_t> &dims, ElementType type) {
  std::string text;
  for (int64_t size : dims)
    text += std::to_string(size) + "x";
  return text + type.name();
}

std::string shapeText(const trainc_port &port) {
  return shapeText({port.dims, port.dims + port.rank}, elementType(port.dtype));
}

uint64_t FileArray::elements() const {
  uint64_t count = 1;
  for (int64_t size : dims)
    count *= static_cast<uint64_t>(size);
  return count;
}

std::string FileArray::text() const {
  return name.empty() ? "'" + path + "'" : "'" + path + "' (" + name + ")";
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
/// Reads the header of a .npy file, a Python dictionary such as
///   {'descr': '<f4', 'fortran_order': False, 'shape': (1437, 64), }
class NpyHeader {
public:
  NpyHeader(const std::string &path, std::string_view text)
      : path(path), rest(text) {
    expect('{');
    while (!accept('}')) {
      std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !hasType)
        parseType(quoted());
      else if (key == "fortran_order" && !hasOrder)
        parseOrder();
      else if (key == "shape" && !hasShape)
        parseShape();
      else
        damaged(); // also a key twice
      accept(',');
    }
    if (!hasType || !hasOrder || !hasShape)
      damaged();
  }

  ElementType type{};
  std::vector<int64_t> dims;

private:
  [[noreturn]] void damaged() {
    fail("'%s' is damaged: its .npy header is not readable", path.c_str());
  }
  bool accept(char c) {
    while (!rest.empty() && rest[0] == ' ')
      rest.remove_prefix(1);
    bool found = !rest.empty() && rest[0] == c;
    if (found)
      rest.remove_prefix(1);
    return found;
  }
  void expect(char c) {
    if (!accept(c))
      damaged();
  }
  std::string_view quoted() {
    expect('\'');
    size_t end = rest.find('\'');
    if (end == std::string_view::npos)
      damaged();
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    return text;
  }
  void parseOrder() {
    hasOrder = true;
    accept(' ');
    if (rest.substr(0, 4) == "True")
      fail("'%s' is in Fortran order: expects C order "
           "(numpy.ascontiguousarray)",
           path.c_str());
    if (rest.substr(0, 5) != "False")
      damaged();
    rest.remove_prefix(5);
  }
  void parseShape() {
    hasShape = true;
    expect('(');
    while (!accept(')')) {
      int64_t size = 0;
      size_t digits = 0;
      for (; !rest.empty() && rest[0] >= '0' && rest[0] <= '9';
           rest.remove_prefix(1), ++digits)
        if (__builtin_mul_overflow(size, 10, &size) ||
            __builtin_add_overflow(size, rest[0] - '0', &size))
          damaged();
      if (digits == 0)
        damaged();
      dims.push_back(size);
      accept(',');
    }
  }
  void parseType(std::string_view descr) {
    hasType = true;
    static constexpr struct {
      std::string_view descr;
      ElementType type;
    } known[] = {
        {"<f4", {ElementType::Float, 4}},
        {"<f8", {ElementType::Float, 8}},
        {"<f2", {ElementType::Float, 2}},
        {"|i1", {ElementType::Signed, 1}},
        {"<i2", {ElementType::Signed, 2}},
        {"<i4", {ElementType::Signed, 4}},
        {"<i8", {ElementType::Signed, 8}},
        {"|u1", {ElementType::Unsigned, 1}},
        {"<u2", {ElementType::Unsigned, 2}},
        {"<u4", {ElementType::Unsigned, 4}},
        {"<u8", {ElementType::Unsigned, 8}},
        {"|b1", {ElementType::Bool, 1}},
    };
    for (const auto &candidate : known)
      if (descr == candidate.descr) {
        type = candidate.type;
        return;
      }
    fail("'%s' has elements of type '%.*s': expects little-endian floats, "
         "integers or booleans",
         path.c_str(), static_cast<int>(descr.size()), descr.data());
  }

  const std::string &path;
  std::string_view rest;
  bool hasType = false, hasOrder = false, hasShape = false;
};
} // namespace

/// So that no product of sizes overflows later, also where one of them is 0.
static void checkSizes(const FileArray &array) {
  uint64_t bytes = array.type.bytes;
  for (int64_t size : array.dims)
    if (size &&
        __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes))
      fail("%s is damaged: its shape has 2^64 bytes or more",
           array.text().c_str());
}

static FileArray readNpy(const std::string &path) {
  int descriptor;
  uint64_t size;
  check(openRegular(path.c_str(), descriptor, size));
  if (size < 12)
    fail("'%s' is no .npy file", path.c_str());
  void *memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (memory == MAP_FAILED)
    fail("cannot read '%s': %s", path.c_str(), std::strerror(errno));
  close(descriptor);
  std::shared_ptr<void> owner(memory, [size](void *p) { munmap(p, size); });

  const char *bytes = static_cast<const char *>(memory);
  if (std::memcmp(bytes, "\x93NUMPY", 6) != 0 || bytes[6] < 1 || bytes[6] > 3)
    fail("'%s' is no .npy file of version 1, 2 or 3", path.c_str());
  bool small = bytes[6] == 1; // two bytes of length, not four
  uint32_t length = 0;
  std::memcpy(&length, bytes + 8, small ? 2 : 4);
  uint64_t start = (small ? 10 : 12) + uint64_t{length};
  if (start > size)
    fail("'%s' is truncated: its header ends at byte %llu, it has %llu",
         path.c_str(), static_cast<unsigned long long>(start),
         static_cast<unsigned long long>(size));
  NpyHeader header(path, {bytes + start - length, length});

  FileArray array{path, "", header.type, header.dims, bytes + start, owner};
  checkSizes(array);
  uint64_t need = array.elements() * array.type.bytes;
  if (need > size - start)
    fail("'%s' is truncated: %s needs %llu bytes of data, it has %llu",
         path.c_str(), array.shape().c_str(),
         static_cast<unsigned long long>(need),
         static_cast<unsigned long long>(size - start));
  return array;
}

static std::vector<FileArray> readSafetensors(const std::string &path) {
  trainc_tensor_file *file;
  check(trainc_tensor_file_open(path.c_str(), &file));
  std::shared_ptr<void> owner(file, [](void *p) {
    trainc_tensor_file_close(static_cast<trainc_tensor_file *>(p));
  });
  std::vector<FileArray> arrays;
  for (uint64_t i = 0; i < trainc_tensor_file_count(file); ++i) {
    trainc_tensor_view view;
    check(trainc_tensor_file_get(file, i, &view));
    if (view.dtype == UINT32_MAX) // not one that an input can have
      continue;
    arrays.push_back({path,
                      view.name,
                      elementType(view.dtype),
                      {view.dims, view.dims + view.rank},
                      static_cast<const char *>(view.data),
                      owner});
    checkSizes(arrays.back());
  }
  return arrays;
}

std::vector<FileArray> readArrays(const std::string &path) {
  std::string_view name = path;
  auto endsWith = [&](std::string_view end) {
    return name.size() >= end.size() &&
           name.substr(name.size() - end.size()) == end;
  };
  if (endsWith(".safetensors"))
    return readSafetensors(path);
  if (endsWith(".npy"))
    return {readNpy(path)};
  fail("'%s' is neither a .npy nor a .safetensors file", path.c_str());
}

//===----------------------------------------------------------------------===//
// Converting
//===----------------------------------------------------------------------===//

bool isConvertible(ElementType from, uint32_t dtype) {
  ElementType to = elementType(dtype);
  return (from.isFloat() && to.isFloat()) ||
         (from.isInteger() && to.isInteger()) || from == to;
}

template <typename T> static T load(const char *data, uint64_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

static double loadFloat(ElementType type, const char *data, uint64_t index) {
  if (type.kind == ElementType::BFloat)
    return bf16ToF32(load<uint16_t>(data, index));
  if (type.bytes == 2)
    return f16ToF32(load<uint16_t>(data, index));
  return type.bytes == 4 ? static_cast<double>(load<float>(data, index))
                         : load<double>(data, index);
}

/// A uint64 from 2^63 on comes out negative.
static int64_t loadInteger(ElementType type, const char *data, uint64_t index) {
  bool isSigned = type.kind == ElementType::Signed;
  switch (type.bytes) {
  case 1:
    return isSigned ? int64_t{load<int8_t>(data, index)}
                    : int64_t{load<uint8_t>(data, index)};
  case 2:
    return isSigned ? int64_t{load<int16_t>(data, index)}
                    : int64_t{load<uint16_t>(data, index)};
  case 4:
    return isSigned ? int64_t{load<int32_t>(data, index)}
                    : int64_t{load<uint32_t>(data, index)};
  }
  return load<int64_t>(data, index);
}

template <typename T>
static bool storeInteger(void *data, uint64_t index, int64_t value) {
  T narrow = static_cast<T>(value);
  static_cast<T *>(data)[index] = narrow;
  return static_cast<int64_t>(narrow) == value;
}

/// False if an integer `dtype` does not hold `value`.
static bool storeInteger(uint32_t dtype, void *data, uint64_t index,
                         int64_t value) {
  switch (dtype) {
  case TRAINC_I8:
    return storeInteger<int8_t>(data, index, value);
  case TRAINC_I16:
    return storeInteger<int16_t>(data, index, value);
  case TRAINC_I32:
    return storeInteger<int32_t>(data, index, value);
  case TRAINC_I64:
    return storeInteger<int64_t>(data, index, value);
  default:
    return storeInteger<uint8_t>(data, index, value);
  }
}

void storeNumber(uint32_t dtype, void *data, uint64_t index, int64_t value) {
  if (isFloat(dtype))
    storeElement(dtype, data, index, static_cast<double>(value));
  else
    storeInteger(dtype, data, index, value);
}

static Problem notFinite(uint64_t element, double value) {
  return {Problem::NotFinite, element,
          std::isnan(value) ? "NaN"
          : value < 0       ? "-infinity"
                            : "infinity"};
}

Problem copyElements(const FileArray &array, uint64_t begin, uint64_t count,
                     uint32_t dtype, void *out) {
  if (array.type == elementType(TRAINC_F32) && dtype == TRAINC_F32) {
    float *values = static_cast<float *>(out);
    std::memcpy(values, array.data + begin * sizeof(float),
                count * sizeof(float));
    for (uint64_t i = 0; i < count; ++i)
      if (!std::isfinite(values[i]))
        return notFinite(begin + i, values[i]);
    return {};
  }
  if (array.type.isFloat()) {
    for (uint64_t i = 0; i < count; ++i) {
      double value = loadFloat(array.type, array.data, begin + i);
      if (!std::isfinite(value))
        return notFinite(begin + i, value);
      storeElement(dtype, out, i, value);
      if (!std::isfinite(loadElement(dtype, out, i)))
        return {Problem::DoesNotFit, begin + i, format("%g", value)};
    }
    return {};
  }
  if (array.type == elementType(dtype)) {
    std::memcpy(out, array.data + begin * array.type.bytes,
                count * array.type.bytes);
    return {};
  }
  bool wide = array.type.kind == ElementType::Unsigned && array.type.bytes == 8;
  for (uint64_t i = 0; i < count; ++i) {
    int64_t value = loadInteger(array.type, array.data, begin + i);
    if ((wide && value < 0) || !storeInteger(dtype, out, i, value))
      return {Problem::DoesNotFit, begin + i,
              wide ? std::to_string(static_cast<uint64_t>(value))
                   : std::to_string(value)};
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Room for any shape; a multiple of 64, as the format wants.
static constexpr size_t npyHeaderBytes = 256;

NpyWriter::NpyWriter(const std::string &path, uint32_t dtype)
    : file(path), dtype(dtype) {
  file.write(std::string(npyHeaderBytes, ' '));
}

void NpyWriter::append(const void *data, uint64_t elements) {
  if (dtype != TRAINC_BF16) {
    file.write(
        {static_cast<const char *>(data), elements * trainc_dtype_size(dtype)});
    return;
  }
  std::vector<float> wide(elements);
  for (uint64_t i = 0; i < elements; ++i)
    wide[i] = static_cast<float>(loadElement(dtype, data, i));
  file.write(
      {reinterpret_cast<const char *>(wide.data()), elements * sizeof(float)});
}

void NpyWriter::finish(const std::vector<int64_t> &dims) {
  ElementType type = elementType(dtype == TRAINC_BF16 ? TRAINC_F32 : dtype);
  const char kinds[] = {'f', 'f', 'i', 'u', 'b'};
  std::string shape;
  for (int64_t size : dims)
    shape += std::to_string(size) + ", ";
  std::string header = format(
      "{'descr': '%c%c%u', 'fortran_order': False, 'shape': (%s), }",
      type.bytes == 1 ? '|' : '<', kinds[type.kind], type.bytes, shape.c_str());
  size_t room = npyHeaderBytes - 10;
  if (header.size() + 1 > room)
    fail("an output of rank %zu has no .npy header", dims.size());
  header.resize(room - 1, ' ');
  header += '\n';
  file.rewind();
  file.write(std::string("\x93NUMPY\x01\x00", 8) +
             static_cast<char>(room & 0xFF) + static_cast<char>(room >> 8));
  file.write(header);
  file.close();
}

} // namespace trainc::run
