//===- Emulate.cpp - GPU modules as images for the emulator ---------------===//
#include "trainc/Target/GPU/Emulate.h"
#include "Emulation.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "trainc/Target/Object.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace trainc;

/// Any x86-64 processor of the last ten years, so that images can be kept.
static constexpr llvm::StringLiteral kProcessor = "x86-64-v3";

/// How much images are optimized: calls of the emulator take most of the time.
static constexpr unsigned kOptimize = 1;

llvm::LogicalResult Emulation::takeKernels() {
  for (llvm::Function &function : module) {
    if (function.getCallingConv() == llvm::CallingConv::PTX_Kernel) {
      kernels.push_back(&function);
      function.setDSOLocal(true);
    } else if (!function.isDeclaration()) {
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
    }
    function.setCallingConv(llvm::CallingConv::C);
    for (llvm::StringRef name : {"target-cpu", "target-features"})
      function.removeFnAttr(name);
    for (llvm::User *user : function.users())
      if (auto *call = llvm::dyn_cast<llvm::CallBase>(user))
        call->setCallingConv(llvm::CallingConv::C);
  }
  if (kernels.empty())
    return refuse("the module has no kernels");
  return llvm::success();
}

/// Makes a module for the host and the emulator out of one for NVPTX.
static llvm::LogicalResult lowerToHost(llvm::Module &module,
                                       llvm::TargetMachine &machine,
                                       std::string &error) {
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
  Emulation emulation{module, error};
  if (llvm::failed(emulation.takeKernels()) ||
      llvm::failed(emulation.checkAccesses()))
    return llvm::failure();
  // Lines are in the checks now.
  llvm::StripDebugInfo(module);
  if (llvm::failed(emulation.replaceCalls()) ||
      llvm::failed(emulation.placeShared()))
    return llvm::failure();
  emulation.addTables();
  llvm::raw_string_ostream stream(error);
  if (llvm::verifyModule(module, &stream))
    return llvm::failure();
  return llvm::success();
}

/// Compiles and links `module`, by way of a file that is gone afterwards.
static llvm::LogicalResult makeImage(llvm::Module &module,
                                     llvm::TargetMachine &machine,
                                     std::string &image, std::string &error) {
  llvm::SmallString<128> library;
  if (std::error_code code =
          llvm::sys::fs::createTemporaryFile("trainc-emulate", "so", library)) {
    error = "cannot write a temporary file: " + code.message();
    return llvm::failure();
  }
  llvm::FileRemover remover(library);
  ObjectFile object;
  if (llvm::failed(emitObject(module, machine, kOptimize, object, error)) ||
      llvm::failed(linkSharedLibrary(object, library, /*alias=*/"",
                                     /*symbol=*/"", error)))
    return llvm::failure();
  auto buffer = llvm::MemoryBuffer::getFile(library);
  if (!buffer) {
    error = "cannot read a temporary file: " + buffer.getError().message();
    return llvm::failure();
  }
  image = (*buffer)->getBuffer().str();
  return llvm::success();
}

llvm::LogicalResult trainc::emulateModule(gpu::GPUModuleOp module,
                                          std::string &out_image) {
  std::string error;
  auto machine =
      createTargetMachine(/*triple=*/{}, kProcessor, kOptimize, error);
  if (!machine)
    return module.emitError(error);
  llvm::LLVMContext context;
  // A copy, whose functions get what instructions need to know their lines.
  OwningOpRef<ModuleOp> copy = ModuleOp::create(module.getLoc());
  auto kernels = cast<gpu::GPUModuleOp>(module->clone());
  copy->push_back(kernels);
  PassManager pm(module.getContext());
  pm.addPass(LLVM::createDIScopeForLLVMFuncOpPass());
  if (failed(pm.run(*copy)))
    return failure();
  auto llvmModule = translateModuleToLLVMIR(kernels, context, module.getName());
  if (!llvmModule)
    return module.emitError("translation to LLVM IR failed");
  if (failed(lowerToHost(*llvmModule, *machine, error)) ||
      failed(makeImage(*llvmModule, *machine, out_image, error)))
    return module.emitError(error);
  return success();
}
