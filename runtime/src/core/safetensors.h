//===- safetensors.h - Reading and writing safetensors files ----*- C++ -*-===//
//
// The format: 8 bytes header length N (little endian), N bytes of JSON
//   {"__metadata__": {"key": "value"},
//    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
// and the data, without holes.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_SAFETENSORS_H
#define TRAINC_CORE_SAFETENSORS_H

#include "core/status.h"

namespace trainc {

/// A tensor of a file. Texts and dims are owned by the header.
struct FileTensor {
  const char *name;
  const char *dtypeName;
  uint32_t dtype; // UINT32_MAX: none of trainc's
  uint32_t rank;
  const int64_t *dims;
  uint64_t begin, end; // bytes of the data section
};

struct MetadataPair {
  const char *key, *value;
};

/// The checked header of a file: names and keys are unique, every tensor has the bytes
/// of its shape, and the tensors fill the data section without overlap.
class FileHeader {
public:
  /// `json` is the header, `dataBytes` the size of the data section. On failure
  /// the text does not name the file.
  trainc_status parse(const char *json, uint64_t bytes, uint64_t dataBytes);

  /// In the order of the data.
  Array<FileTensor> tensors;
  Array<MetadataPair> metadata;

  const FileTensor *find(const char *name) const;
  const char *findMetadata(const char *key) const;

private:
  trainc_status checkMetadata() const;
  trainc_status check(uint64_t dataBytes);

  Array<uint32_t> byName; // indices into tensors, sorted
  Array<int64_t> dimensions;
  Text texts;
};

/// A file opened for reading.
class TensorFile {
public:
  ~TensorFile();

  trainc_status open(const char *path);
  /// Reads bytes [begin, begin + bytes) of the data section.
  trainc_status read(uint64_t begin, void *data, uint64_t bytes) const;
  /// The JSON of the header.
  trainc_status readHeader(Array<char> &json) const;
  uint64_t dataBytes() const { return fileBytes - dataStart; }
  /// Maps the data section; `data()` is valid afterwards.
  trainc_status map();

  const char *path() const { return name.c_str(); }
  const char *data() const { return mapped + dataStart; }

  FileHeader header;

private:
  Text name;
  int descriptor = -1;
  uint64_t fileBytes = 0, dataStart = 0;
  char *mapped = nullptr;
};

/// Says that the data of a file are not those of its header's checksum.
trainc_status failChecksum(const char *name, const char *expected,
                           uint32_t found);

/// The limit of the format's own reader.
constexpr uint64_t maxHeaderBytes = 100'000'000;

/// Makes a header. Tensors must be added in the order of their data.
class HeaderWriter {
public:
  void addMetadata(const char *key, const char *value);
  /// Of the data, once it is known: see checksum.h.
  void addChecksum();
  void addTensor(const char *name, uint32_t dtype, uint32_t rank,
                 const int64_t *dims, uint64_t bytes);
  /// The header with its length, padded so that the data is 64-byte aligned.
  const Text &finish();
  uint64_t dataBytes() const { return offset; }
  /// Where in the header the checksum goes, over the zeros that stand for it.
  uint64_t checksumPlace() const { return checksum; }

private:
  void appendString(Text &to, const char *text);

  Text pairs, entries, result;
  uint64_t offset = 0, checksum = 0;
};

/// The bytes at the beginning of a text that are whole characters of UTF-8.
size_t countUtf8(const char *text, size_t bytes);
inline bool isUtf8(const char *text) {
  return countUtf8(text, strlen(text)) == strlen(text);
}

} // namespace trainc

#endif // TRAINC_CORE_SAFETENSORS_H
