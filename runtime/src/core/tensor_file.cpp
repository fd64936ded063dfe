//===- tensor_file.cpp - Safetensors files opened for reading -------------===//

#include "core/checksum.h"
#include "core/files.h"
#include "core/safetensors.h"
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace trainc;

TensorFile::~TensorFile() {
  if (mapped)
    munmap(mapped, fileBytes);
  if (descriptor >= 0)
    close(descriptor);
}

static trainc_status readAt(int descriptor, const char *path, uint64_t offset,
                            void *data, uint64_t bytes) {
  char *to = static_cast<char *>(data);
  while (bytes) {
    size_t piece = bytes < (1u << 30) ? bytes : (1u << 30);
    ssize_t got = pread(descriptor, to, piece, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return fail(TRAINC_IO_ERROR, "cannot read '%s': %s", path,
                  got < 0 ? errnoText(errno) : "unexpected end of file");
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return TRAINC_OK;
}

trainc_status TensorFile::open(const char *path) {
  name.append(path);
  TRAINC_TRY(openRegular(path, descriptor, fileBytes));
  if (fileBytes < 8)
    return fail(TRAINC_DATA_CORRUPT,
                "'%s' is no safetensors file: it has %llu bytes", path,
                static_cast<unsigned long long>(fileBytes));
  uint64_t headerBytes;
  TRAINC_TRY(readAt(descriptor, path, 0, &headerBytes, 8));
  if (headerBytes > maxHeaderBytes || headerBytes > fileBytes - 8)
    return fail(TRAINC_DATA_CORRUPT,
                "'%s' is truncated or no safetensors file: a header of %llu "
                "bytes in a file of %llu",
                path, static_cast<unsigned long long>(headerBytes),
                static_cast<unsigned long long>(fileBytes));
  Array<char> json;
  if (!json.tryResize(headerBytes))
    return failAllocation(headerBytes, "the header of a file");
  TRAINC_TRY(readAt(descriptor, path, 8, json.data(), headerBytes));
  dataStart = 8 + headerBytes;
  if (header.parse(json.data(), headerBytes, fileBytes - dataStart) !=
      TRAINC_OK)
    return fail(TRAINC_DATA_CORRUPT, "'%s' is damaged: %s", path,
                trainc_last_error());
  return TRAINC_OK;
}

trainc_status TensorFile::readHeader(Array<char> &json) const {
  if (!json.tryResize(dataStart - 8))
    return failAllocation(dataStart - 8, "the header of a file");
  return readAt(descriptor, name.c_str(), 8, json.data(), json.size());
}

trainc_status TensorFile::read(uint64_t begin, void *data,
                               uint64_t bytes) const {
  return readAt(descriptor, name.c_str(), dataStart + begin, data, bytes);
}

trainc_status trainc::failChecksum(const char *name, const char *expected,
                                   uint32_t found) {
  Text text;
  appendChecksum(text, found);
  return fail(TRAINC_DATA_CORRUPT,
              "%s is damaged: its data have the checksum %s, its header has %s",
              name, text.c_str(), expected);
}

trainc_status TensorFile::map() {
  void *memory =
      mmap(nullptr, fileBytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (memory == MAP_FAILED)
    return fail(TRAINC_IO_ERROR, "cannot map '%s': %s", name.c_str(),
                errnoText(errno));
  mapped = static_cast<char *>(memory);
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

struct trainc_tensor_file : TensorFile {};

trainc_status trainc_tensor_file_open(const char *path,
                                      trainc_tensor_file **out_file) {
  auto *file = create<trainc_tensor_file>();
  trainc_status status = file->open(path);
  if (status == TRAINC_OK)
    status = file->map();
  if (status != TRAINC_OK)
    destroy(file);
  else
    *out_file = file;
  return status;
}

void trainc_tensor_file_close(trainc_tensor_file *file) { destroy(file); }

uint64_t trainc_tensor_file_count(const trainc_tensor_file *file) {
  return file->header.tensors.size();
}

static void fillView(const trainc_tensor_file *file, const FileTensor &tensor,
                     trainc_tensor_view *view) {
  view->name = tensor.name;
  view->dtype_name = tensor.dtypeName;
  view->dtype = tensor.dtype;
  view->rank = tensor.rank;
  view->dims = tensor.dims;
  view->data = file->data() + tensor.begin;
  view->bytes = tensor.end - tensor.begin;
}

trainc_status trainc_tensor_file_get(const trainc_tensor_file *file,
                                     uint64_t index,
                                     trainc_tensor_view *out_view) {
  if (index >= file->header.tensors.size())
    return fail(TRAINC_INVALID_ARGUMENT, "'%s' has %zu tensors; no number %llu",
                file->path(), file->header.tensors.size(),
                static_cast<unsigned long long>(index));
  fillView(file, file->header.tensors[index], out_view);
  return TRAINC_OK;
}

trainc_status trainc_tensor_file_find(const trainc_tensor_file *file,
                                      const char *name,
                                      trainc_tensor_view *out_view) {
  const FileTensor *tensor = file->header.find(name);
  if (!tensor)
    return fail(TRAINC_NOT_FOUND, "'%s' has no tensor '%s'", file->path(),
                name);
  fillView(file, *tensor, out_view);
  return TRAINC_OK;
}

trainc_status trainc_tensor_file_verify(const trainc_tensor_file *file) {
  const char *text = file->header.findMetadata(checksumKey);
  uint32_t expected = 0;
  if (!text)
    return fail(TRAINC_NOT_FOUND, "'%s' has no checksum", file->path());
  if (!parseChecksum(text, expected))
    return fail(TRAINC_UNSUPPORTED,
                "'%s' has a checksum that this runtime does not know: '%s'",
                file->path(), text);
  Checksum sum(file->dataBytes());
  sum.add(0, file->data(), file->dataBytes());
  uint32_t found = sum.finish();
  Text name;
  name.format("'%s'", file->path());
  return found == expected ? TRAINC_OK
                           : failChecksum(name.c_str(), text, found);
}

trainc_status trainc_tensor_file_metadata(const trainc_tensor_file *file,
                                          const char *key,
                                          const char **out_value) {
  const char *value = file->header.findMetadata(key);
  if (!value)
    return fail(TRAINC_NOT_FOUND, "'%s' has no metadata '%s'", file->path(),
                key);
  *out_value = value;
  return TRAINC_OK;
}
