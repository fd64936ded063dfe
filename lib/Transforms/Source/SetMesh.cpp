//===- SetMesh.cpp - Give the axes of the mesh other sizes ----------------===//
//
// This pass is what `--mesh=` does: the same source for another number of ranks.
//
//===----------------------------------------------------------------------===//
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Source/Passes.h"
#include "llvm/ADT/StringExtras.h"

#define DEBUG_TYPE "train-set-mesh"

namespace trainc {
#define GEN_PASS_DEF_SETMESHPASS
#include "trainc/Transforms/Source/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

using Axis = std::pair<std::string, int64_t>;

/// The axes of `texts`, each `name=size`.
static FailureOr<SmallVector<Axis>> parseAxes(ModuleOp module,
                                              ArrayRef<std::string> texts) {
  SmallVector<Axis> axes;
  for (StringRef text : texts) {
    auto [name, size] = text.split('=');
    Axis axis(name.str(), 0);
    if (name.empty() || size.getAsInteger(10, axis.second))
      return module.emitError("expects an axis as name=size, got '")
             << text << "'";
    for (const Axis &other : axes)
      if (other.first == axis.first)
        return module.emitError("expects axis '") << name << "' once";
    axes.push_back(axis);
  }
  return axes;
}

/// Replaces sizes of `mesh`.
static LogicalResult resize(MeshOp mesh, ArrayRef<Axis> axes) {
  SmallVector<StringRef> names;
  for (auto name : mesh.getAxes().getAsRange<StringAttr>())
    names.push_back(name.getValue());
  SmallVector<int64_t> sizes(mesh.getSizes());
  for (const auto &[name, size] : axes) {
    auto *known = llvm::find(names, name);
    if (known == names.end())
      return mesh.emitOpError("has no axis '")
             << name << "', but " << llvm::join(names, ", ");
    sizes[known - names.begin()] = size;
  }
  mesh.setSizes(sizes);
  return success();
}

/// Declares a mesh of `axes` at the start of `module`.
static void declareMesh(ModuleOp module, ArrayRef<Axis> axes) {
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  SmallVector<Attribute> names;
  SmallVector<int64_t> sizes;
  for (const auto &[name, size] : axes) {
    names.push_back(b.getStringAttr(name));
    sizes.push_back(size);
  }
  SymbolTable symbols(module);
  auto mesh = MeshOp::create(b, module.getLoc(), "mesh", b.getArrayAttr(names),
                             b.getDenseI64ArrayAttr(sizes));
  mesh->remove();
  symbols.insert(mesh, module.getBody()->begin());
}

namespace {
struct SetMeshPass : trainc::impl::SetMeshPassBase<SetMeshPass> {
  using SetMeshPassBase::SetMeshPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (axes.empty())
      return;
    SmallVector<std::string> texts(axes.begin(), axes.end());
    auto parsed = parseAxes(module, texts);
    if (failed(parsed))
      return signalPassFailure();
    if (MeshOp mesh = getMesh(module)) {
      if (failed(resize(mesh, *parsed)))
        signalPassFailure();
      return;
    }
    declareMesh(module, *parsed);
  }
};
} // namespace
