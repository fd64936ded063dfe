//===- Images.cpp - The kernels of GPUs as images -------------------------===//
#include "Images.h"
#include "Kernels.h"
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

/// Appends the cubins, in the order of the architectures, and the PTX of the last one.
static void pushImages(const ImageOptions &options,
                       llvm::MutableArrayRef<std::string> cubins,
                       std::string ptx, std::vector<ImageRow> &images) {
  uint32_t toolkit =
      1000 * options.toolkit->major + 10 * options.toolkit->minor;
  for (auto [arch, cubin] : llvm::zip_equal(options.archs, cubins))
    images.push_back({TRAINC_IMAGE_CUBIN, arch, toolkit, std::move(cubin)});
  images.push_back(
      {TRAINC_IMAGE_PTX, *options.archs.rbegin(), toolkit, std::move(ptx)});
}

/// Makes the images of `module`, which is in form 4.
static LogicalResult makeImages(ModuleOp module, const ImageOptions &options,
                                std::vector<ImageRow> &images) {
  auto kernels = *module.getOps<gpu::GPUModuleOp>().begin();
  const std::set<unsigned> &archs = options.archs;
  if (options.emulated) {
    images.push_back({TRAINC_IMAGE_HOST, 0, 0, ""});
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
  pushImages(options, cubins, std::move(texts.back()), images);
  return success();
}

/// The name under which the cache has the images of `kernels`, which `passes` lower.
static std::optional<Cache::Key> keyOf(const Cache &cache, ModuleOp kernels,
                                       PassManager &passes,
                                       const ImageOptions &options) {
  std::string choices, text;
  {
    llvm::raw_string_ostream os(choices);
    passes.printAsTextualPipeline(os);
    os << "\n-O" << options.optimize << "\n" << options.toolkit->version;
    for (unsigned arch : options.archs)
      os << "sm_" << arch << "\n";
  }
  {
    // With the names of kernels: an image is searched by them.
    llvm::raw_string_ostream os(text);
    kernels->print(os, OpPrintingFlags().printGenericOpForm());
  }
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> tools;
  for (StringRef name : {kAssembler, kDevice}) {
    SmallString<128> path(options.toolkit->path);
    llvm::sys::path::append(path, name);
    auto file = llvm::MemoryBuffer::getFile(path);
    if (!file) {
      kernels.emitWarning("cannot read '")
          << path << "', on which images depend: they are not kept";
      return std::nullopt;
    }
    tools.push_back(std::move(*file));
  }
  return cache.keyOf(
      {"images", choices, text, tools[0]->getBuffer(), tools[1]->getBuffer()});
}

/// Takes images and the kernels' attributes from what the cache has; failure if they are
/// not of these kernels.
static LogicalResult unpack(std::vector<std::string> parts, ModuleOp kernels,
                            const ImageOptions &options,
                            std::vector<ImageRow> &images) {
  SmallVector<StringRef> lines;
  StringRef(parts.front())
      .split(lines, '\n', /*MaxSplit=*/-1,
             /*KeepEmpty=*/false);
  auto ops = llvm::to_vector(kernels.getOps<KernelOp>());
  if (lines.size() != ops.size())
    return failure();
  for (auto [kernel, line] : llvm::zip_equal(ops, lines)) {
    train::AbiAttr abi = parseAbi(line, kernels.getContext());
    if (!abi)
      return failure();
    kernel.setAbiAttr(abi);
  }
  pushImages(options, llvm::MutableArrayRef(parts).drop_front().drop_back(),
             std::move(parts.back()), images);
  return success();
}

static void store(Cache &cache, const Cache::Key &key, ModuleOp kernels,
                  llvm::ArrayRef<ImageRow> images) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (KernelOp kernel : kernels.getOps<KernelOp>())
    os << kernel.getAbiAttr() << "\n";
  std::vector<StringRef> parts{text};
  for (const ImageRow &image : images)
    parts.push_back(image.data);
  cache.store(key, parts);
}

/// The kernels that the runtime needs if a library refuses the module's epilogues.
static llvm::SmallVector<std::string> epiloguesOf(ModuleOp module) {
  std::set<std::string> names;
  module.walk([&](train::GemmOp gemm) {
    auto typeOf = [](Value value) {
      std::string text;
      llvm::raw_string_ostream(text)
          << cast<ShapedType>(value.getType()).getElementType();
      return text;
    };
    std::string to = typeOf(gemm.getMain());
    if (gemm.getBias() || gemm.getEpilogue() != train::Epilogue::none)
      names.insert("trainc_epilogue_" + to);
    if (gemm.getBiasGradient() != train::BiasGradient::none) {
      bool sumsC = gemm.getBiasGradient() == train::BiasGradient::result;
      names.insert("trainc_column_sums_" +
                   (sumsC ? to : typeOf(gemm.getLhs())) + "_" + to);
    }
  });
  return llvm::SmallVector<std::string>(names.begin(), names.end());
}

LogicalResult trainc::compileImages(ModuleOp module,
                                    const PipelineOptions &given,
                                    const ImageOptions &options, Cache *cache,
                                    std::vector<ImageRow> &images,
                                    bool &cached) {
  PipelineOptions pipeline = given;
  pipeline.epilogues = epiloguesOf(module);
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(module.getLoc());
  for (KernelOp kernel : module.getOps<KernelOp>())
    kernels->push_back(kernel.clone());
  PassManager passes(module.getContext());
  buildPhase(passes, Form::Target, pipeline);

  std::optional<Cache::Key> key;
  std::optional<std::vector<std::string>> known;
  if (cache && !options.emulated)
    key = keyOf(*cache, *kernels, passes, options);
  if (key)
    known = cache->load(*key, options.archs.size() + 2);
  cached =
      known && succeeded(unpack(std::move(*known), *kernels, options, images));
  if (known && !cached)
    cache->reportDamage(*key);
  if (!cached) {
    if (failed(passes.run(*kernels)) ||
        failed(makeImages(*kernels, options, images)))
      return failure();
    if (key)
      store(*cache, *key, *kernels, images);
  }
  for (auto [kernel, lowered] :
       llvm::zip_equal(module.getOps<KernelOp>(), kernels->getOps<KernelOp>()))
    kernel.setAbiAttr(lowered.getAbiAttr());
  return success();
}
