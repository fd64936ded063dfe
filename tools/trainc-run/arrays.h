//===- arrays.h - Arrays in .npy and .safetensors files ---------*- C++ -*-===//
#ifndef TRAINC_RUN_ARRAYS_H
#define TRAINC_RUN_ARRAYS_H

#include "support.h"
#include <memory>
#include <vector>

namespace trainc::run {

/// The type of an element in a file: wider than trainc_dtype, since data often
/// comes as uint16 or int64.
struct ElementType {
  enum Kind { Float, BFloat, Signed, Unsigned, Bool };
  Kind kind;
  uint32_t bytes;

  bool isFloat() const { return kind == Float || kind == BFloat; }
  bool isInteger() const { return kind == Signed || kind == Unsigned; }
  bool operator==(const ElementType &) const = default;
  /// "f32", "u16", ...
  std::string name() const;
};

/// The type that is trainc_dtype `dtype`.
ElementType elementType(uint32_t dtype);

/// "32x64xf32".
std::string shapeText(const std::vector<int64_t> &dims, ElementType type);
std::string shapeText(const trainc_port &port);

/// A dense row-major array of a file, mapped read only; not always aligned.
struct FileArray {
  std::string path, name; // name: of the tensor, empty in a .npy file
  ElementType type;
  std::vector<int64_t> dims;
  const char *data;
  std::shared_ptr<void> owner;

  /// No overflow: readArrays checks that the bytes of all elements have a number.
  uint64_t elements() const;
  std::string shape() const { return shapeText(dims, type); }
  /// "'FILE'", or "'FILE' (NAME)".
  std::string text() const;
};

/// All arrays of a .npy or .safetensors file; ends the program if the file is
/// missing, truncated or of another kind.
std::vector<FileArray> readArrays(const std::string &path);

/// Can elements of `from` be given to an input of type `dtype`? Floating types
/// convert into each other, and integer types where the value fits.
bool isConvertible(ElementType from, uint32_t dtype);

/// What copyElements met.
struct Problem {
  enum Kind { None, NotFinite, DoesNotFit } kind = None;
  uint64_t element = 0; // of the array
  std::string value;
};

/// Copies elements [begin, begin + count) of `array` to `out`, as `dtype`.
/// Stops at the first NaN or infinity, and at the first number that the type does not
/// hold.
Problem copyElements(const FileArray &array, uint64_t begin, uint64_t count,
                     uint32_t dtype, void *out);

/// Writes element `index` of an integer or floating `dtype`.
void storeNumber(uint32_t dtype, void *data, uint64_t index, int64_t value);

/// Writes a .npy file piece by piece. bf16 is written as f32.
class NpyWriter {
public:
  NpyWriter(const std::string &path, uint32_t dtype);
  void append(const void *data, uint64_t elements);
  /// Writes the header: the product of `dims` is what was appended.
  void finish(const std::vector<int64_t> &dims);

private:
  OutputFile file;
  uint32_t dtype;
};

} // namespace trainc::run

#endif // TRAINC_RUN_ARRAYS_H
