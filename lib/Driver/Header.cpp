//===- Header.cpp - The C header of an artifact ---------------------------===//
//
// Names of a model are any text, and the header is C and C++: every identifier made of
// one begins with a prefix of ours (the artifact's name, in_, out_), so that it is no
// reserved word and no macro, and ends in a number if another one has its letters.
//
//===----------------------------------------------------------------------===//
#include "Header.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/raw_ostream.h"

using namespace trainc;

/// `name` with an underscore for all that is no letter or digit.
static std::string lettersOf(llvm::StringRef name) {
  std::string result;
  for (char c : name)
    result += llvm::isAlnum(c) ? c : '_';
  return result;
}

/// `name` as a part of a comment.
static std::string commentOf(llvm::StringRef name) {
  std::string result;
  for (char c : name) {
    bool ends = !result.empty() && ((result.back() == '*' && c == '/') ||
                                    (result.back() == '/' && c == '*'));
    if (ends)
      result += ' ';
    result += llvm::isAlnum(c) || llvm::isPunct(c) || (c & 0x80) ? c : ' ';
  }
  return result;
}

namespace {
/// The identifiers of a scope.
struct Scope {
  llvm::StringSet<> taken;

  /// `name` so that all of `prefixes` with it are identifiers that nothing else has.
  std::string choose(llvm::StringRef name,
                     llvm::ArrayRef<std::string> prefixes) {
    std::string letters = lettersOf(name), chosen = letters;
    auto isTaken = [&](const std::string &prefix) {
      return taken.contains(prefix + chosen);
    };
    for (int next = 2; llvm::any_of(prefixes, isTaken); ++next)
      chosen = letters + "_" + std::to_string(next);
    for (const std::string &prefix : prefixes)
      taken.insert(prefix + chosen);
    return chosen;
  }
};
} // namespace

static llvm::StringRef cType(trainc_dtype dtype) {
  switch (dtype) {
  case TRAINC_F32:
    return "float";
  case TRAINC_F64:
    return "double";
  case TRAINC_I8:
    return "int8_t";
  case TRAINC_I16:
    return "int16_t";
  case TRAINC_I32:
    return "int32_t";
  case TRAINC_I64:
    return "int64_t";
  case TRAINC_BF16:
  case TRAINC_F16:
    return "uint16_t";
  case TRAINC_BOOL:
  case TRAINC_U8:
    return "uint8_t";
  }
  return "void";
}

static std::string shapeText(const std::vector<int64_t> &dims) {
  std::string text;
  for (int64_t dim : dims)
    text += "[" + std::to_string(dim) + "]";
  return text.empty() ? " (one value)" : text;
}

/// The typed function that binds and runs an entry.
static void printEntry(llvm::raw_ostream &os, const std::string &name,
                       const EntryRow &entry, size_t index) {
  bool step = entry.kind == TRAINC_ENTRY_STEP;
  Scope scope;
  scope.taken.insert("out_result"); // of a step
  std::vector<std::string> inputs, outputs;
  for (const PortRow &port : entry.inputs)
    inputs.push_back("in_" + scope.choose(port.name, {"in_"}));
  for (const PortRow &port : entry.outputs)
    outputs.push_back("out_" + scope.choose(port.name, {"out_"}));
  os << "/* Entry " << index << ", "
     << (step ? "a micro-step" : "an evaluation")
     << (entry.accumulate > 1
             ? "; " + std::to_string(entry.accumulate) + " make one update"
             : "")
     << ". Inputs and outputs are dense, row major:\n";
  for (const PortRow &port : entry.inputs)
    os << " *   in  " << commentOf(port.name) << ": " << cType(port.dtype)
       << shapeText(port.dims) << "\n";
  for (const PortRow &port : entry.outputs)
    os << " *   out " << commentOf(port.name) << ": " << cType(port.dtype)
       << shapeText(port.dims) << "\n";
  os << " * They are bound by the call and must stay valid until the next "
        "bind. "
        "*/\n";
  os << "static inline trainc_status " << name << "(trainc_trainer *trainer";
  for (auto [port, input] : llvm::zip(entry.inputs, inputs))
    os << ", const " << cType(port.dtype) << " *" << input;
  for (auto [port, output] : llvm::zip(entry.outputs, outputs))
    os << ", " << cType(port.dtype) << " *" << output;
  if (step)
    os << ", trainc_step_result *out_result";
  os << ") {\n  trainc_status status = TRAINC_OK;\n";
  for (auto [i, port] : llvm::enumerate(entry.inputs))
    os << "  if (status == TRAINC_OK)\n    status = trainc_bind_input(trainer, "
       << index << ", " << i << ", " << inputs[i] << ", " << port.bytes
       << ");\n";
  for (auto [i, port] : llvm::enumerate(entry.outputs))
    os << "  if (status == TRAINC_OK)\n    status = "
          "trainc_bind_output(trainer, "
       << index << ", " << i << ", " << outputs[i] << ", " << port.bytes
       << ");\n";
  os << "  if (status == TRAINC_OK)\n    status = ";
  if (step)
    os << "trainc_step(trainer, " << index << ", out_result);\n";
  else
    os << "trainc_eval(trainer, " << index << ");\n";
  os << "  return status;\n}\n\n";
}

std::string trainc::buildHeader(const Tables &tables) {
  std::string text;
  llvm::raw_string_ostream os(text);
  std::string prefix = lettersOf(tables.name), guard = prefix;
  for (char &c : guard)
    c = toupper(static_cast<unsigned char>(c));
  os << "/* " << tables.name << ": a training step compiled by trainc "
     << TRAINC_VERSION << ". Generated; do not edit. */\n"
     << "#ifndef TRAINC_STEP_" << guard << "_H\n#define TRAINC_STEP_" << guard
     << "_H\n\n#include <trainc/runtime.h>\n#include <trainc/step_abi.h>\n\n"
     << "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
     << "/* The artifact, where its object is linked in: pass its address to\n"
     << " * trainc_artifact_open_descriptor. */\n"
     << "extern const trainc_descriptor " << tables.name << "_descriptor;\n\n"
     << "/* Of a name, what is no letter or digit is _ in an identifier, and "
        "equal\n"
     << " * ones end in _2, _3, ...: an entry is a function " << prefix
     << "_ENTRY and a\n * constant " << prefix
     << "_entry_ENTRY, its inputs are in_INPUT, its outputs out_OUTPUT. */\n\n";
  os << "/* Parameters: name, shape.\n";
  for (const TensorRow &row : tables.tensors)
    if (row.role == TRAINC_ROLE_MASTER)
      os << " *   " << commentOf(row.name) << ": " << cType(row.dtype)
         << shapeText(row.dims) << "\n";
  os << " */\n\n";
  os << "/* Run-time scalars that trainc_set_scalar takes:\n";
  for (const ScalarRow &row : tables.scalars)
    if (row.flags & TRAINC_SCALAR_SETTABLE)
      os << " *   " << commentOf(row.name) << " = " << row.init << "\n";
  os << " */\n\n";
  Scope scope;
  scope.taken.insert(tables.name + "_descriptor");
  for (auto [i, entry] : llvm::enumerate(tables.entries)) {
    std::string constant = prefix + "_entry_", function = prefix + "_";
    std::string name = scope.choose(entry.name, {constant, function});
    os << "enum { " << constant << name << " = " << i << " };\n";
    printEntry(os, function + name, entry, i);
  }
  os << "#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
  return text;
}
