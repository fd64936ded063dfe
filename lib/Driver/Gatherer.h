//===- Gatherer.h - What gathers the tables of an artifact ------*- C++ -*-===//
//
// For Tables.cpp and CommandTables.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_DRIVER_GATHERER_H
#define TRAINC_LIB_DRIVER_GATHERER_H

#include "Tables.h"
#include "trainc/Dialect/Train/TrainPlaces.h"

namespace trainc {

struct Gatherer {
  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  train::Layouts layouts;
  Tables tables;
  llvm::StringMap<uint32_t> arenaIndex, groupIndex, kernelIndex;
  llvm::DenseMap<mlir::Operation *, uint32_t> windows; // by the first step

  Gatherer(mlir::ModuleOp module, llvm::StringRef name, trainc_target target)
      : module(module), symbols(module), layouts(module) {
    tables.name = name.str();
    tables.target = target;
  }

  void gatherMesh();
  std::vector<int64_t> splitsOf(size_t rank, mlir::Attribute split);
  uint64_t gradientOf(train::StepOp step, llvm::StringRef param,
                      const PortRow &input);
  uint32_t maskOf(mlir::ArrayAttr axes);
  void gatherArenas();
  void gatherTensors();
  TensorRow &addTensor(llvm::StringRef name, llvm::StringRef state,
                       trainc_role role, llvm::StringRef arena, int32_t group,
                       mlir::Attribute init);
  void gatherEntry(mlir::Operation *entry, mlir::Region &body,
                   mlir::ArrayAttr inputNames);
  void gatherList(EntryRow &entry, train::ListOp list);
  trainc_operand operandOf(EntryRow &entry, mlir::Value buffer,
                           uint32_t access);
  CommandRow commandOf(EntryRow &entry, train::ListOp list,
                       train::LaunchOp launch);
  CommandRow commandOf(EntryRow &entry, train::GemmOp gemm);
  CommandRow commandOf(EntryRow &entry, train::ConvolutionOp op);
  CommandRow commandOf(EntryRow &entry, train::StartOp start, uint32_t phase);
  void addCopy(EntryRow &entry, std::vector<CommandRow> &commands,
               mlir::Value source, mlir::Value target, int64_t offset = 0);
  void addCopies(EntryRow &entry, std::vector<CommandRow> &commands,
                 train::FlattenOp flat);
};

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_GATHERER_H
