//===- safetensors.cpp - Reading and writing safetensors files ------------===//
//
// Files come from anywhere: the parser trusts nothing, does not recurse, and
// checks every sum and product for overflow.
//
//===----------------------------------------------------------------------===//

#include "core/safetensors.h"
#include "core/checksum.h"

using namespace trainc;

static constexpr uint32_t maxRank = 64;

//===----------------------------------------------------------------------===//
// UTF-8
//===----------------------------------------------------------------------===//

/// Bytes of the character at `text`, or 0 if it is none: table 3-7 of the Unicode
/// standard, which has no overlong forms, no surrogates and nothing past 10FFFF.
static size_t characterBytes(const unsigned char *text, size_t bytes) {
  unsigned char first = text[0];
  if (first < 0x80)
    return 1;
  size_t length = first < 0xC2   ? 0
                  : first < 0xE0 ? 2
                  : first < 0xF0 ? 3
                  : first < 0xF5 ? 4
                                 : 0;
  if (length == 0 || length > bytes)
    return 0;
  unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (text[1] < low || text[1] > high)
    return 0;
  for (size_t i = 2; i < length; ++i)
    if (text[i] < 0x80 || text[i] > 0xBF)
      return 0;
  return length;
}

size_t trainc::countUtf8(const char *text, size_t bytes) {
  auto *all = reinterpret_cast<const unsigned char *>(text);
  size_t at = 0;
  while (at < bytes) {
    size_t length = characterBytes(all + at, bytes - at);
    if (!length)
      break;
    at += length;
  }
  return at;
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

namespace {
/// Takes tokens from the header. Every function returns false at a fault, after
/// which `fault` says what was expected and `position` where.
class Scanner {
public:
  Scanner(const char *text, uint64_t bytes)
      : start(text), next(text), end(text + bytes) {}

  bool take(char c) {
    skipSpace();
    if (next == end || *next != c)
      return expected(c == '{'   ? "'{'"
                      : c == '}' ? "'}'"
                      : c == '[' ? "'['"
                      : c == ']' ? "']'"
                      : c == ':' ? "':'"
                                 : "','");
    ++next;
    return true;
  }
  bool peek(char c) {
    skipSpace();
    return next != end && *next == c;
  }
  /// After an element: true if another follows, false if `close` was taken.
  bool more(char close, bool &valid) {
    if (peek(close)) {
      ++next;
      return false;
    }
    valid = take(',');
    return valid;
  }
  bool atEnd() {
    skipSpace();
    return next == end || expected("nothing more");
  }
  bool number(uint64_t &value);
  bool string(Text &out);

  bool expected(const char *what) {
    fault = what;
    return false;
  }
  uint64_t position() const { return static_cast<uint64_t>(next - start); }

  const char *fault = "";

private:
  void skipSpace() {
    while (next != end &&
           (*next == ' ' || *next == '\n' || *next == '\t' || *next == '\r'))
      ++next;
  }
  bool escape(Text &out);
  bool hex4(uint32_t &value);

  const char *start, *next, *end;
};
} // namespace

bool Scanner::number(uint64_t &value) {
  skipSpace();
  const char *first = next;
  value = 0;
  for (; next != end && *next >= '0' && *next <= '9'; ++next) {
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, *next - '0', &value) || value > INT64_MAX)
      return expected("a number below 2^63");
  }
  bool leadingZero = next - first > 1 && *first == '0';
  return (next != first && !leadingZero) || expected("a whole number");
}

bool Scanner::hex4(uint32_t &value) {
  value = 0;
  for (int i = 0; i < 4; ++i, ++next) {
    if (next == end)
      return false;
    char c = *next;
    uint32_t digit =
        c >= '0' && c <= '9'   ? static_cast<uint32_t>(c - '0')
        : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a' + 10)
        : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A' + 10)
                               : 16;
    if (digit == 16)
      return false;
    value = value << 4 | digit;
  }
  return true;
}

/// The part of an escape after its backslash.
bool Scanner::escape(Text &out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  char c = *next++;
  if (const char *place = c ? strchr(from, c) : nullptr) {
    out.append(to[place - from]);
    return true;
  }
  uint32_t code, low;
  if (c != 'u' || !hex4(code))
    return expected("an escape");
  if (code >= 0xD800 && code < 0xDC00) {
    if (end - next < 6 || next[0] != '\\' || next[1] != 'u')
      return expected("a pair of surrogates");
    next += 2;
    if (!hex4(low) || low < 0xDC00 || low > 0xDFFF)
      return expected("a pair of surrogates");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code < 0xE000) {
    return expected("a pair of surrogates");
  }
  if (code == 0)
    return expected("a string without zero bytes");
  if (code < 0x80) {
    out.append(static_cast<char>(code));
    return true;
  }
  if (code >= 0x10000) {
    out.append(static_cast<char>(0xF0 | code >> 18));
    out.append(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
  } else if (code >= 0x800) {
    out.append(static_cast<char>(0xE0 | code >> 12));
  }
  if (code >= 0x800)
    out.append(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
  else
    out.append(static_cast<char>(0xC0 | code >> 6));
  out.append(static_cast<char>(0x80 | (code & 0x3F)));
  return true;
}

/// Appends the string and a zero byte to `out`.
bool Scanner::string(Text &out) {
  skipSpace();
  if (next == end || *next != '"')
    return expected("a string");
  ++next;
  while (next != end && *next != '"') {
    if (static_cast<unsigned char>(*next) < 0x20)
      return expected("a string without control characters");
    if (*next != '\\') {
      const char *first = next;
      while (next != end && *next != '"' && *next != '\\' &&
             static_cast<unsigned char>(*next) >= 0x20)
        ++next;
      size_t bytes = static_cast<size_t>(next - first);
      size_t valid = countUtf8(first, bytes);
      if (valid != bytes) {
        next = first + valid;
        return expected("UTF-8");
      }
      out.append(first, bytes);
      continue;
    }
    if (++next == end || !escape(out))
      return expected("an escape");
  }
  if (next == end)
    return expected("the end of a string");
  ++next;
  out.append('\0');
  return true;
}

//===----------------------------------------------------------------------===//
// Header
//===----------------------------------------------------------------------===//

namespace {
/// Offsets into the header's texts and dimensions, which move while they grow.
struct RawTensor {
  uint64_t name, dtype, dims;
  uint32_t rank;
  uint64_t begin, end;
};
struct RawPair {
  uint64_t key, value;
};

class HeaderParser {
public:
  HeaderParser(Scanner &scanner, Text &texts, Array<int64_t> &dims)
      : scanner(scanner), texts(texts), dims(dims) {}

  bool parse() {
    bool valid = scanner.take('{');
    if (!valid || scanner.peek('}'))
      return valid && scanner.take('}') && scanner.atEnd();
    do
      valid = parseMember();
    while (valid && scanner.more('}', valid));
    return valid && scanner.atEnd();
  }

  Array<RawTensor> tensors;
  Array<RawPair> pairs;

private:
  bool parseMember() {
    uint64_t name = texts.size();
    if (!scanner.string(texts) || !scanner.take(':'))
      return false;
    if (strcmp(texts.data() + name, "__metadata__") != 0)
      return parseTensor(name);
    if (haveMetadata)
      return scanner.expected("one __metadata__");
    haveMetadata = true;
    return parseMetadata();
  }

  bool parseMetadata() {
    bool valid = scanner.take('{');
    if (!valid || scanner.peek('}'))
      return valid && scanner.take('}');
    do {
      RawPair pair;
      pair.key = texts.size();
      valid = scanner.string(texts) && scanner.take(':');
      pair.value = texts.size();
      valid = valid && scanner.string(texts);
      pairs.push(pair);
    } while (valid && scanner.more('}', valid));
    return valid;
  }

  bool parseTensor(uint64_t name) {
    RawTensor tensor = {};
    tensor.name = name;
    bool haveType = false, haveShape = false, haveOffsets = false;
    bool valid = scanner.take('{');
    if (!valid)
      return false;
    do {
      Text key;
      if (!scanner.string(key) || !scanner.take(':'))
        return false;
      if (!haveType && !strcmp(key.c_str(), "dtype")) {
        haveType = true;
        tensor.dtype = texts.size();
        valid = scanner.string(texts);
      } else if (!haveShape && !strcmp(key.c_str(), "shape")) {
        haveShape = true;
        valid = parseShape(tensor);
      } else if (!haveOffsets && !strcmp(key.c_str(), "data_offsets")) {
        haveOffsets = true;
        valid = scanner.take('[') && scanner.number(tensor.begin) &&
                scanner.take(',') && scanner.number(tensor.end) &&
                scanner.take(']');
      } else {
        return scanner.expected("one each of dtype, shape, data_offsets");
      }
    } while (valid && scanner.more('}', valid));
    if (valid && !(haveType && haveShape && haveOffsets))
      return scanner.expected("dtype, shape and data_offsets");
    tensors.push(tensor);
    return valid;
  }

  bool parseShape(RawTensor &tensor) {
    tensor.dims = dims.size();
    bool valid = scanner.take('[');
    if (!valid || scanner.peek(']'))
      return valid && scanner.take(']');
    do {
      uint64_t size;
      if (!scanner.number(size))
        return false;
      if (++tensor.rank > maxRank)
        return scanner.expected("a rank of at most 64");
      dims.push(static_cast<int64_t>(size));
    } while (scanner.more(']', valid));
    return valid;
  }

  Scanner &scanner;
  Text &texts;
  Array<int64_t> &dims;
  bool haveMetadata = false;
};

struct ForeignType {
  const char *name;
  uint64_t bytes;
};
} // namespace

/// Types of the format that trainc does not have.
static const ForeignType foreignTypes[] = {
    {"U16", 2},     {"U32", 4},     {"U64", 8}, {"F8_E5M2", 1},
    {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"C64", 8},
};

/// Bytes of an element; 0: no such type. Sets `dtype` if it is trainc's.
static uint64_t findType(const char *name, uint32_t &dtype) {
  for (dtype = 0; trainc_dtype_name(dtype); ++dtype)
    if (!strcmp(trainc_dtype_name(dtype), name))
      return trainc_dtype_size(dtype);
  dtype = UINT32_MAX;
  for (const ForeignType &type : foreignTypes)
    if (!strcmp(type.name, name))
      return type.bytes;
  return 0;
}

trainc_status FileHeader::parse(const char *json, uint64_t bytes,
                                uint64_t dataBytes) {
  Scanner scanner(json, bytes);
  HeaderParser parser(scanner, texts, dimensions);
  if (!parser.parse())
    return fail(TRAINC_DATA_CORRUPT, "header byte %llu: expected %s",
                static_cast<unsigned long long>(scanner.position()),
                scanner.fault);
  for (const RawTensor &raw : parser.tensors) {
    FileTensor tensor;
    tensor.name = texts.data() + raw.name;
    tensor.dtypeName = texts.data() + raw.dtype;
    tensor.rank = raw.rank;
    tensor.dims = dimensions.data() + raw.dims;
    tensor.begin = raw.begin;
    tensor.end = raw.end;
    uint64_t size = findType(tensor.dtypeName, tensor.dtype);
    if (!size)
      return fail(TRAINC_DATA_CORRUPT, "tensor '%s' has unknown dtype '%s'",
                  tensor.name, tensor.dtypeName);
    bool overflow = false;
    for (uint32_t i = 0; i < tensor.rank; ++i)
      overflow |= __builtin_mul_overflow(
          size, static_cast<uint64_t>(tensor.dims[i]), &size);
    if (overflow || tensor.begin > tensor.end ||
        tensor.end - tensor.begin != size)
      return fail(TRAINC_DATA_CORRUPT,
                  "tensor '%s': data_offsets do not fit dtype and shape",
                  tensor.name);
    tensors.push(tensor);
  }
  for (const RawPair &pair : parser.pairs)
    metadata.push({texts.data() + pair.key, texts.data() + pair.value});
  TRAINC_TRY(checkMetadata());
  return check(dataBytes);
}

trainc_status FileHeader::checkMetadata() const {
  Array<MetadataPair> sorted;
  for (const MetadataPair &pair : metadata)
    sorted.push(pair);
  qsort(sorted.data(), sorted.size(), sizeof(MetadataPair),
        [](const void *a, const void *b) {
          return strcmp(static_cast<const MetadataPair *>(a)->key,
                        static_cast<const MetadataPair *>(b)->key);
        });
  for (size_t i = 1; i < sorted.size(); ++i)
    if (!strcmp(sorted[i].key, sorted[i - 1].key))
      return fail(TRAINC_DATA_CORRUPT, "two pairs of metadata are named '%s'",
                  sorted[i].key);
  return TRAINC_OK;
}

trainc_status FileHeader::check(uint64_t dataBytes) {
  if (tensors.size() == 0)
    return dataBytes == 0
               ? TRAINC_OK
               : fail(TRAINC_DATA_CORRUPT, "the file has data but no tensors");
  qsort(tensors.data(), tensors.size(), sizeof(FileTensor),
        [](const void *a, const void *b) {
          auto *x = static_cast<const FileTensor *>(a);
          auto *y = static_cast<const FileTensor *>(b);
          if (x->begin != y->begin)
            return x->begin < y->begin ? -1 : 1;
          if (x->end != y->end)
            return x->end < y->end ? -1 : 1;
          return strcmp(x->name, y->name);
        });
  uint64_t end = 0;
  for (const FileTensor &tensor : tensors) {
    if (tensor.begin != end)
      return fail(TRAINC_DATA_CORRUPT, "tensor '%s' %s", tensor.name,
                  tensor.begin < end ? "overlaps another"
                                     : "follows a hole in the data");
    end = tensor.end;
  }
  if (end != dataBytes)
    return fail(TRAINC_DATA_CORRUPT,
                "the file has %llu bytes of data, its tensors need %llu",
                static_cast<unsigned long long>(dataBytes),
                static_cast<unsigned long long>(end));

  for (uint32_t i = 0; i < tensors.size(); ++i)
    byName.push(i);
  qsort_r(
      byName.data(), byName.size(), sizeof(uint32_t),
      [](const void *a, const void *b, void *context) {
        auto *all = static_cast<const FileTensor *>(context);
        return strcmp(all[*static_cast<const uint32_t *>(a)].name,
                      all[*static_cast<const uint32_t *>(b)].name);
      },
      tensors.data());
  for (size_t i = 1; i < byName.size(); ++i)
    if (!strcmp(tensors[byName[i]].name, tensors[byName[i - 1]].name))
      return fail(TRAINC_DATA_CORRUPT, "two tensors are named '%s'",
                  tensors[byName[i]].name);
  return TRAINC_OK;
}

const FileTensor *FileHeader::find(const char *name) const {
  size_t low = 0, high = byName.size();
  while (low < high) {
    size_t middle = (low + high) / 2;
    int order = strcmp(name, tensors[byName[middle]].name);
    if (order == 0)
      return &tensors[byName[middle]];
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return nullptr;
}

const char *FileHeader::findMetadata(const char *key) const {
  for (const MetadataPair &pair : metadata)
    if (!strcmp(pair.key, key))
      return pair.value;
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static const char headerStart[] = "{\"__metadata__\":{";

void HeaderWriter::appendString(Text &to, const char *text) {
  to.append('"');
  for (; *text; ++text) {
    unsigned char c = static_cast<unsigned char>(*text);
    if (c == '"' || c == '\\')
      to.append('\\');
    if (c < 0x20)
      to.format("\\u%04x", c);
    else
      to.append(*text);
  }
  to.append('"');
}

void HeaderWriter::addMetadata(const char *key, const char *value) {
  if (pairs.size())
    pairs.append(',');
  appendString(pairs, key);
  pairs.append(':');
  appendString(pairs, value);
}

void HeaderWriter::addChecksum() {
  Text zeros;
  appendChecksum(zeros, 0);
  addMetadata(checksumKey, zeros.c_str());
  checksum = 8 + strlen(headerStart) + pairs.size() - 1 - zeros.size();
}

void HeaderWriter::addTensor(const char *name, uint32_t dtype, uint32_t rank,
                             const int64_t *dims, uint64_t bytes) {
  entries.append(',');
  appendString(entries, name);
  entries.format(":{\"dtype\":\"%s\",\"shape\":[", trainc_dtype_name(dtype));
  for (uint32_t i = 0; i < rank; ++i)
    entries.format("%s%lld", i ? "," : "", static_cast<long long>(dims[i]));
  entries.format("],\"data_offsets\":[%llu,%llu]}",
                 static_cast<unsigned long long>(offset),
                 static_cast<unsigned long long>(offset + bytes));
  offset += bytes;
}

const Text &HeaderWriter::finish() {
  uint64_t bytes = strlen(headerStart) + pairs.size() + strlen("}") +
                   entries.size() + strlen("}");
  uint64_t padded = alignUp(bytes + 8, 64) - 8;
  result.append(reinterpret_cast<const char *>(&padded), 8);
  result.format("%s%s}%s}", headerStart, pairs.c_str(), entries.c_str());
  for (uint64_t i = bytes; i < padded; ++i)
    result.append(' ');
  return result;
}
