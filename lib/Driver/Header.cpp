//===- Header.cpp - The C header of an artifact ---------------------------===//
#include "Tables.h"
#include "llvm/Support/raw_ostream.h"

using namespace trainc;

/// `name` as a C identifier.
static std::string identifier(llvm::StringRef name) {
  std::string result;
  for (char c : name)
    result += isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (result.empty() || isdigit(static_cast<unsigned char>(result[0])))
    result = "_" + result;
  return result;
}

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
static void printEntry(llvm::raw_ostream &os, const std::string &prefix,
                       const EntryRow &entry, size_t index) {
  bool step = entry.kind == TRAINC_ENTRY_STEP;
  std::string name = prefix + "_" + identifier(entry.name);
  os << "/* Entry " << index << ", "
     << (step ? "a micro-step" : "an evaluation")
     << (entry.accumulate > 1
             ? "; " + std::to_string(entry.accumulate) + " make one update"
             : "")
     << ". Inputs and outputs are dense, row major:\n";
  for (const PortRow &port : entry.inputs)
    os << " *   in  " << port.name << ": " << cType(port.dtype)
       << shapeText(port.dims) << "\n";
  for (const PortRow &port : entry.outputs)
    os << " *   out " << port.name << ": " << cType(port.dtype)
       << shapeText(port.dims) << "\n";
  os << " * They are bound by the call and must stay valid until the next "
        "bind. "
        "*/\n";
  os << "static inline trainc_status " << name << "(trainc_trainer *trainer";
  for (const PortRow &port : entry.inputs)
    os << ", const " << cType(port.dtype) << " *" << identifier(port.name);
  for (const PortRow &port : entry.outputs)
    os << ", " << cType(port.dtype) << " *out_" << identifier(port.name);
  if (step)
    os << ", trainc_step_result *out_result";
  os << ") {\n  trainc_status status = TRAINC_OK;\n";
  for (auto [i, port] : llvm::enumerate(entry.inputs))
    os << "  if (status == TRAINC_OK)\n    status = trainc_bind_input(trainer, "
       << index << ", " << i << ", " << identifier(port.name) << ", "
       << port.bytes << ");\n";
  for (auto [i, port] : llvm::enumerate(entry.outputs))
    os << "  if (status == TRAINC_OK)\n    status = "
          "trainc_bind_output(trainer, "
       << index << ", " << i << ", out_" << identifier(port.name) << ", "
       << port.bytes << ");\n";
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
  std::string prefix = identifier(tables.name), guard = prefix;
  for (char &c : guard)
    c = toupper(static_cast<unsigned char>(c));
  os << "/* " << tables.name << ": a training step compiled by trainc "
     << TRAINC_VERSION << ". Generated; do not edit. */\n"
     << "#ifndef TRAINC_STEP_" << guard << "_H\n#define TRAINC_STEP_" << guard
     << "_H\n\n#include <trainc/runtime.h>\n#include <trainc/step_abi.h>\n\n"
     << "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
     << "/* The artifact, where its object is linked in: pass its address to\n"
     << " * trainc_artifact_open_descriptor. */\n"
     << "extern const trainc_descriptor " << tables.name << "_descriptor;\n\n";
  os << "/* Parameters: name, shape.\n";
  for (const TensorRow &row : tables.tensors)
    if (row.role == TRAINC_ROLE_MASTER)
      os << " *   " << row.name << ": " << cType(row.dtype)
         << shapeText(row.dims) << "\n";
  os << " */\n\n";
  os << "/* Run-time scalars that trainc_set_scalar takes:\n";
  for (const ScalarRow &row : tables.scalars)
    if (row.flags & TRAINC_SCALAR_SETTABLE)
      os << " *   " << row.name << " = " << row.init << "\n";
  os << " */\n\n";
  for (auto [i, entry] : llvm::enumerate(tables.entries)) {
    os << "enum { " << prefix << "_entry_" << identifier(entry.name) << " = "
       << i << " };\n";
    printEntry(os, prefix, entry, i);
  }
  os << "#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
  return text;
}
