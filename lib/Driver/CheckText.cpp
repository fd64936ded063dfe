//===- CheckText.cpp - What the parser must not see -----------------------===//
#include "CheckText.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

static constexpr int64_t kMostNested = 256;
/// Each operator of an affine expression is one more call on the stack.
static constexpr int64_t kLongestRun = 1024;
static constexpr uint32_t kMostAligned = 4096;

namespace {
/// A walk over the text, without its comments.
struct TextChecker {
  llvm::SourceMgr &sources;
  MLIRContext *context;
  StringRef text;
  size_t at = 0;
  int64_t nested = 0;
  int64_t run = 0; // characters since the last that ends an expression
  bool inResources = false;

  LogicalResult fail(const Twine &message) {
    auto [line, column] =
        sources.getLineAndColumn(llvm::SMLoc::getFromPointer(text.data() + at));
    StringRef name =
        sources.getMemoryBuffer(sources.getMainFileID())->getBufferIdentifier();
    return emitError(FileLineColLoc::get(context, name, line, column), message);
  }
  bool take(StringRef token) {
    if (!text.substr(at).starts_with(token))
      return false;
    at += token.size();
    return true;
  }
  LogicalResult checkString();
  LogicalResult check();
};
} // namespace

/// Goes over a string; one of resources begins with their alignment, in hexadecimal.
LogicalResult TextChecker::checkString() {
  size_t begin = at + 1, end = begin;
  while (end < text.size() && text[end] != '"' && text[end] != '\n')
    end += text[end] == '\\' ? 2 : 1;
  StringRef string = text.slice(begin, end);
  std::string bytes;
  if (inResources && string.consume_front("0x") &&
      llvm::tryGetFromHex(string.take_front(8), bytes) && bytes.size() == 4) {
    uint32_t alignment = llvm::support::endian::read32le(bytes.data());
    if (!llvm::isPowerOf2_32(alignment) || alignment > kMostAligned)
      return fail("expects a resource aligned to a power of two up to " +
                  Twine(kMostAligned) + ", got " + Twine(alignment));
  }
  at = end + 1;
  return success();
}

LogicalResult TextChecker::check() {
  while (at < text.size()) {
    char c = text[at];
    if (c == '"') {
      run = 0;
      if (failed(checkString()))
        return failure();
      continue;
    }
    if (text.substr(at).starts_with("//")) {
      at = text.find('\n', at);
      continue;
    }
    if (take("{-#")) {
      inResources = true;
      continue;
    }
    if (take("->") || take(">=") || take("<="))
      continue;
    if (StringRef("([{<").contains(c))
      ++nested;
    else if (StringRef(")]}>").contains(c))
      nested = std::max<int64_t>(nested - 1, 0);
    if (nested > kMostNested)
      return fail("expects at most " + Twine(kMostNested) +
                  " brackets around anything");
    if (StringRef("([{<)]}>,:=").contains(c))
      run = 0;
    else if (!llvm::isSpace(c) && ++run > kLongestRun)
      return fail("expects at most " + Twine(kLongestRun) +
                  " characters without a bracket, comma, colon, equal sign or "
                  "string");
    ++at;
  }
  return success();
}

LogicalResult trainc::checkText(llvm::SourceMgr &sources,
                                MLIRContext *context) {
  StringRef text =
      sources.getMemoryBuffer(sources.getMainFileID())->getBuffer();
  // Bytecode is no text.
  if (text.starts_with("ML\xefR"))
    return success();
  return TextChecker{sources, context, text}.check();
}
