//===- Cache.h - What was compiled before, in a folder ----------*- C++ -*-===//
//
// A folder of files, each with what was made from one input. A file's name is the
// hash of all that decides its content: the input, the options, and the compiler
// itself. Files are written beside their place and renamed, so that any number of
// compilers may share the folder and be ended at any time. A file is used only if
// it holds its own name and a hash of its content, and nobody else can have made it.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_DRIVER_CACHE_H
#define TRAINC_LIB_DRIVER_CACHE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainc {

class Cache {
public:
  using Key = std::array<uint8_t, 32>;

  /// The cache in `folder`, which is made if need be; null and a message if it can
  /// not be written. Null without a message, but with a warning to standard error, if
  /// others than this user and root may write to it: then it is not used.
  static std::unique_ptr<Cache> open(llvm::StringRef folder,
                                     std::string &error);

  /// The name of what this compiler makes of `inputs`, all of them and in this order.
  Key keyOf(llvm::ArrayRef<llvm::StringRef> inputs) const;

  /// What was stored under `key`, in `count` parts. A file that is damaged, or that others
  /// than this user and root may write to, counts as none, with a message to standard
  /// error. Safe in several threads, as is `store`.
  std::optional<std::vector<std::string>> load(const Key &key,
                                               size_t count) const;
  /// Says that what was stored under `key` cannot be used.
  void reportDamage(const Key &key) const;
  /// A file that cannot be written is left out, with a message to standard error.
  void store(const Key &key, llvm::ArrayRef<llvm::StringRef> parts);

  /// Removes what was not used for the longest time until the files have at most
  /// `bytes` together, and what ended compilers left.
  void prune(uint64_t bytes) const;

private:
  std::string folder;
  /// Hash of the code of this compiler.
  Key compiler;
  std::atomic<bool> writable = true;

  std::string pathOf(const Key &key) const;
};

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_CACHE_H
