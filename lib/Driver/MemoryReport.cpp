//===- MemoryReport.cpp - Will it fit? ------------------------------------===//
#include "Reports.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace trainc;

static llvm::StringRef roleText(trainc_role role) {
  switch (role) {
#define TRAINC_ROLE(NAME, number, text)                                        \
  case TRAINC_ROLE_##NAME:                                                     \
    return text;
#include "trainc/step_abi.def"
  }
  return "";
}

std::string trainc::buildMemoryReport(const Tables &tables, bool json) {
  std::string text;
  llvm::raw_string_ostream os(text);
  uint64_t total = 0, inputs = 0;
  for (const ArenaRow &arena : tables.arenas)
    total += arena.bytes;
  for (const EntryRow &entry : tables.entries) {
    uint64_t bytes = 0;
    for (const PortRow &port : entry.outputs)
      bytes += port.bytes;
    inputs = std::max(inputs, bytes);
  }
  if (json) {
    llvm::json::Array arenas;
    for (const ArenaRow &arena : tables.arenas)
      arenas.push_back(
          llvm::json::Object{{"name", arena.name},
                             {"role", roleText(arena.role)},
                             {"bytes", static_cast<int64_t>(arena.bytes)}});
    llvm::json::Array entries;
    for (const EntryRow &entry : tables.entries)
      entries.push_back(llvm::json::Object{
          {"name", entry.name},
          {"workspace", static_cast<int64_t>(entry.workspaceBytes)},
          {"alive", static_cast<int64_t>(entry.aliveBytes)},
          {"recomputed", static_cast<int64_t>(entry.recomputed)},
          {"saved", static_cast<int64_t>(entry.savedBytes)},
          {"recompute_time", entry.recomputeTime}});
    llvm::json::Object root{{"name", tables.name},
                            {"total", static_cast<int64_t>(total)},
                            {"arenas", std::move(arenas)},
                            {"entries", std::move(entries)}};
    os << llvm::formatv("{0:2}", llvm::json::Value(std::move(root))) << "\n";
    return text;
  }
  auto line = [&](llvm::StringRef name, llvm::StringRef role, uint64_t bytes) {
    os << llvm::left_justify(name, 24) << llvm::left_justify(role, 28)
       << llvm::format("%12.3f MB\n", bytes / 1e6);
  };
  for (const ArenaRow &arena : tables.arenas)
    if (arena.bytes)
      line(arena.name, roleText(arena.role), arena.bytes);
  line("total", "", total);
  os << "workspace by entry:\n";
  for (const EntryRow &entry : tables.entries) {
    line("  " + entry.name, "", entry.workspaceBytes);
    line("", "needed at one command", entry.aliveBytes);
    if (entry.recomputed) {
      line("", "saved by recomputation", entry.savedBytes);
      os << llvm::formatv("{0,24}{1} values again, about {2:F1} % more time\n",
                          "", entry.recomputed, 100 * entry.recomputeTime);
    }
  }
  return text;
}
