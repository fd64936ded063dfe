//===- Serialize.cpp - GPU modules as code for NVIDIA GPUs ----------------===//
#include "trainc/Target/GPU/Serialize.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Target/LLVM/NVVM/Target.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace mlir;
using namespace trainc;

namespace {
/// A release of the toolkit, and what it brought.
struct Release {
  unsigned major, minor;
  unsigned ptx;
  std::initializer_list<unsigned> archs;
};
} // namespace

/// CUDA's release notes; versions of PTX that LLVM 22 knows.
static const Release kReleases[] = {{12, 0, 80, {80, 86, 87, 89, 90}},
                                    {12, 1, 81, {}},
                                    {12, 2, 82, {}},
                                    {12, 3, 83, {}},
                                    {12, 4, 84, {}},
                                    {12, 5, 85, {}},
                                    {12, 8, 87, {100, 120}},
                                    {12, 9, 88, {103, 121}},
                                    {13, 0, 90, {88, 110}}};

static bool isAtLeast(const Toolkit &toolkit, const Release &release) {
  return std::pair(toolkit.major, toolkit.minor) >=
         std::pair(release.major, release.minor);
}

std::string Toolkit::ptxFeature() const {
  unsigned ptx = kReleases[0].ptx;
  for (const Release &release : kReleases)
    if (isAtLeast(*this, release))
      ptx = release.ptx;
  return "+ptx" + std::to_string(ptx);
}

//===----------------------------------------------------------------------===//
// The toolkit
//===----------------------------------------------------------------------===//

/// Asks ptxas for its version.
static bool readVersion(llvm::StringRef ptxas, Toolkit &toolkit) {
  llvm::SmallString<128> path;
  if (llvm::sys::fs::createTemporaryFile("trainc-ptxas", "txt", path))
    return false;
  llvm::FileRemover remover(path);
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(), path.str(),
                                                llvm::StringRef()};
  if (llvm::sys::ExecuteAndWait(ptxas, {ptxas, "--version"}, std::nullopt,
                                redirects) != 0)
    return false;
  auto text = llvm::MemoryBuffer::getFile(path);
  if (!text)
    return false;
  toolkit.version = (*text)->getBuffer().str();
  llvm::StringRef rest = (*text)->getBuffer().split("release ").second;
  return !rest.consumeInteger(10, toolkit.major) && rest.consume_front(".") &&
         !rest.consumeInteger(10, toolkit.minor);
}

static llvm::SmallString<128> pathOf(llvm::StringRef folder,
                                     llvm::StringRef file) {
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path, file);
  return path;
}

static bool hasFile(llvm::StringRef folder, llvm::StringRef file) {
  return llvm::sys::fs::is_regular_file(pathOf(folder, file));
}

/// Where a toolkit may be, if nobody says.
static llvm::SmallVector<std::string> placesOfToolkit() {
  llvm::SmallVector<std::string> places;
  for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char *path = std::getenv(variable); path && *path)
      places.push_back(path);
  places.push_back("/usr/local/cuda");
  if (auto ptxas = llvm::sys::findProgramByName("ptxas")) {
    llvm::SmallString<128> real;
    if (!llvm::sys::fs::real_path(*ptxas, real))
      places.push_back(
          llvm::sys::path::parent_path(llvm::sys::path::parent_path(real))
              .str());
  }
  return places;
}

std::optional<Toolkit> trainc::findToolkit(llvm::StringRef path,
                                           std::string &error) {
  Toolkit toolkit;
  if (!path.empty()) {
    toolkit.path = path.str();
  } else {
    llvm::SmallVector<std::string> places = placesOfToolkit();
    for (const std::string &place : places)
      if (toolkit.path.empty() && hasFile(place, kAssembler) &&
          hasFile(place, kDevice))
        toolkit.path = place;
    if (toolkit.path.empty()) {
      error = "cannot find a CUDA toolkit (12.0 or later): expects --cuda-path "
              "or CUDA_HOME, a folder with " +
              kAssembler.str() + " and " + kDevice.str() + "; looked in " +
              llvm::join(places, ", ");
      return std::nullopt;
    }
  }
  for (llvm::StringRef file : {kAssembler, kDevice})
    if (!hasFile(toolkit.path, file)) {
      error = "the CUDA toolkit in '" + toolkit.path + "' has no " + file.str();
      return std::nullopt;
    }
  if (!readVersion(pathOf(toolkit.path, kAssembler), toolkit)) {
    error = "the CUDA toolkit in '" + toolkit.path + "': " + kAssembler.str() +
            " does not tell its version";
    return std::nullopt;
  }
  if (!isAtLeast(toolkit, kReleases[0])) {
    error = "the CUDA toolkit in '" + toolkit.path + "' is version " +
            std::to_string(toolkit.major) + "." +
            std::to_string(toolkit.minor) + ", expects 12.0 or later";
    return std::nullopt;
  }
  return toolkit;
}

std::optional<unsigned> trainc::parseArch(llvm::StringRef arch,
                                          std::string &error) {
  unsigned number = 0;
  llvm::StringRef rest = arch;
  std::string known;
  bool named = rest.consume_front("sm_") && !rest.getAsInteger(10, number);
  for (const Release &release : kReleases)
    for (unsigned other : release.archs) {
      if (named && other == number)
        return number;
      known += (known.empty() ? "sm_" : ", sm_") + std::to_string(other);
    }
  error = "expects an architecture among " + known +
          ", or host (the emulator of tests), got '" + arch.str() + "'";
  return std::nullopt;
}

llvm::LogicalResult trainc::checkArch(unsigned arch, const Toolkit &toolkit,
                                      std::string &error) {
  for (const Release &release : kReleases)
    if (llvm::is_contained(release.archs, arch) &&
        !isAtLeast(toolkit, release)) {
      error =
          "sm_" + std::to_string(arch) + " needs a CUDA toolkit of version " +
          std::to_string(release.major) + "." + std::to_string(release.minor) +
          " or later, the one in '" + toolkit.path + "' is " +
          std::to_string(toolkit.major) + "." + std::to_string(toolkit.minor);
      return llvm::failure();
    }
  return llvm::success();
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

void trainc::registerGPUTranslations(DialectRegistry &registry) {
  registerBuiltinDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
  NVVM::registerNVVMTargetInterfaceExternalModels(registry);
}

llvm::LogicalResult
trainc::serializeModule(gpu::GPUModuleOp module, unsigned arch,
                        const Toolkit &toolkit, unsigned optimize,
                        std::string &cubin, std::string &ptx) {
  auto keepText = [&](llvm::StringRef text) { ptx = text.str(); };
  gpu::TargetOptions options(toolkit.path, {}, {}, {},
                             gpu::CompilationTarget::Binary, {}, {}, {}, {},
                             keepText);
  auto target = NVVM::NVVMTargetAttr::get(
      module.getContext(), static_cast<int>(optimize), "nvptx64-nvidia-cuda",
      "sm_" + std::to_string(arch), toolkit.ptxFeature());
  auto object = cast<gpu::TargetAttrInterface>(Attribute(target))
                    .serializeToObject(module, options);
  if (!object)
    return module.emitError("no code for sm_") << arch;
  cubin.assign(object->begin(), object->end());
  return llvm::success();
}
