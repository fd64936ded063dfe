//===- Images.cpp - The kernels of GPUs as images -------------------------===//
#include "Images.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/IR/Threading.h"
#include "trainc/Target/GPU/Emulate.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace trainc;
using trainc::train::KernelOp;

std::optional<ImageOptions>
trainc::chooseImages(llvm::ArrayRef<std::string> names, llvm::StringRef path,
                     unsigned optimize, std::string &error) {
  ImageOptions options;
  options.optimize = optimize;
  for (StringRef name : names) {
    if (name == "host")
      options.emulated = true;
    else if (auto arch = parseArch(name, error))
      options.archs.insert(*arch);
    else
      return std::nullopt;
  }
  if (options.archs.empty())
    return options;
  options.toolkit = findToolkit(path, error);
  if (!options.toolkit)
    return std::nullopt;
  for (unsigned arch : options.archs)
    if (failed(checkArch(arch, *options.toolkit, error)))
      return std::nullopt;
  return options;
}

LogicalResult trainc::makeImages(ModuleOp module, const ImageOptions &options,
                                 std::vector<ImageRow> &images) {
  auto kernels = *module.getOps<gpu::GPUModuleOp>().begin();
  const std::set<unsigned> &archs = options.archs;
  if (options.emulated) {
    images.push_back({TRAINC_IMAGE_HOST, 0, ""});
    if (failed(emulateModule(kernels, images.back().data)))
      return failure();
  }
  if (archs.empty())
    return success();
  std::vector<std::string> cubins(archs.size()), texts(archs.size());
  if (failed(failableParallelForEachN(
          module.getContext(), 0, archs.size(), [&](size_t i) {
            return serializeModule(kernels, *std::next(archs.begin(), i),
                                   *options.toolkit, options.optimize,
                                   cubins[i], texts[i]);
          })))
    return failure();
  for (auto [arch, cubin] : llvm::zip(archs, cubins))
    images.push_back({TRAINC_IMAGE_CUBIN, arch, std::move(cubin)});
  images.push_back(
      {TRAINC_IMAGE_PTX, *archs.rbegin(), std::move(texts.back())});
  return success();
}

//===----------------------------------------------------------------------===//
// The cache
//===----------------------------------------------------------------------===//

/// All that decides what becomes of `kernels`, but for them and the compiler.
static std::string textOf(const PipelineOptions &pipeline,
                          const ImageOptions &options, MLIRContext *context) {
  PassManager passes(context);
  buildPhase(passes, Form::Target, pipeline);
  std::string text;
  llvm::raw_string_ostream os(text);
  passes.printAsTextualPipeline(os);
  os << "\n-O" << options.optimize << "\n" << options.toolkit->version;
  for (unsigned arch : options.archs)
    os << "sm_" << arch << "\n";
  return text;
}

CachedImages::CachedImages(ModuleOp module, const PipelineOptions &pipeline,
                           const ImageOptions &options, Cache *cache)
    : module(module), options(options), cache(cache) {
  if (options.emulated || options.archs.empty())
    this->cache = nullptr;
  if (!this->cache)
    return;
  // The kernels alone, with their names: images are searched by them.
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(module.getLoc());
  for (KernelOp kernel : module.getOps<KernelOp>())
    kernels->push_back(kernel.clone());
  std::string text;
  llvm::raw_string_ostream os(text);
  kernels->print(os, OpPrintingFlags().printGenericOpForm());
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> tools;
  for (StringRef name : {kAssembler, kDevice}) {
    SmallString<128> path(options.toolkit->path);
    llvm::sys::path::append(path, name);
    auto file = llvm::MemoryBuffer::getFile(path);
    if (!file) {
      module.emitWarning("cannot read '")
          << path << "', on which images depend: they are not kept";
      this->cache = nullptr;
      return;
    }
    tools.push_back(std::move(*file));
  }
  key = cache->keyOf({"images", textOf(pipeline, options, module.getContext()),
                      text, tools[0]->getBuffer(), tools[1]->getBuffer()});
}

bool CachedImages::load(std::vector<ImageRow> &images) {
  if (!cache)
    return false;
  auto parts = cache->load(key);
  if (!parts)
    return false;
  auto kernels = module.getOps<KernelOp>();
  auto attributes =
      cast<ArrayAttr>(parseAttribute(parts->front(), module.getContext()));
  for (auto [kernel, known] :
       llvm::zip(kernels, attributes.getAsRange<DictionaryAttr>()))
    kernel->setDiscardableAttrs(known);
  auto data = std::next(parts->begin());
  for (unsigned arch : options.archs)
    images.push_back({TRAINC_IMAGE_CUBIN, arch, std::move(*data++)});
  images.push_back(
      {TRAINC_IMAGE_PTX, *options.archs.rbegin(), std::move(*data)});
  return true;
}

void CachedImages::store(llvm::ArrayRef<ImageRow> images) {
  if (!cache)
    return;
  SmallVector<Attribute> attributes;
  for (KernelOp kernel : module.getOps<KernelOp>())
    attributes.push_back(kernel->getDiscardableAttrDictionary());
  std::string text;
  llvm::raw_string_ostream(text)
      << ArrayAttr::get(module.getContext(), attributes);
  std::vector<StringRef> parts{text};
  for (const ImageRow &image : images)
    parts.push_back(image.data);
  cache->store(key, parts);
}
