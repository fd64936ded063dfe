//===- Processor.cpp - The processors that code is made for ---------------===//
#include "trainc/Target/Object.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/AArch64TargetParser.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/X86TargetParser.h"

using namespace trainc;

/// Features of this machine's processor that it has, or has not, without those that only tune.
static llvm::SmallVector<std::string> hostFeatures(bool has = true) {
  llvm::SmallVector<std::string> features;
  for (const auto &[name, enabled] : llvm::sys::getHostCPUFeatures())
    if (enabled == has)
      features.push_back(name.str());
  return features;
}

/// By LLVM's names, with + or -: what code may use, all of which the runtime can check.
static std::string withSign(llvm::ArrayRef<std::string> features,
                            llvm::StringRef sign) {
  std::string text;
  for (const std::string &feature : features)
    text += (text.empty() ? "" : ",") + sign.str() + feature;
  return text;
}

//===----------------------------------------------------------------------===//
// x86-64
//===----------------------------------------------------------------------===//

/// Features whose instructions no compiler chooses by itself, and which virtual
/// machines often hide: code for a processor that has them runs without.
static constexpr llvm::StringLiteral kSystemFeatures[] = {
    "cldemote", "clflushopt", "clwb",   "clzero",    "enqcmd",    "fsgsbase",
    "hreset",   "invpcid",    "kl",     "lwp",       "movdir64b", "movdiri",
    "mwaitx",   "pconfig",    "pku",    "prefetchi", "ptwrite",   "rdpid",
    "rdpru",    "rdrnd",      "rdseed", "rtm",       "serialize", "sgx",
    "shstk",    "tsxldtrk",   "uintr",  "usermsr",   "waitpkg",   "wbnoinvd",
    "widekl",   "xsave",      "xsavec", "xsaveopt",  "xsaves"};

/// Without these nothing was tested.
static constexpr struct {
  llvm::StringLiteral feature, name;
} kNeededFeatures[] = {{"avx2", "AVX2"}, {"fma", "FMA"}, {"f16c", "F16C"}};

/// The features of a processor of x86-64; false and a message if there is none.
static bool featuresOfX86(llvm::StringRef cpu, std::string &features,
                          std::string &error) {
  llvm::SmallVector<std::string> names;
  if (cpu == "native") {
    names = hostFeatures();
  } else if (llvm::X86::parseArchX86(cpu, /*Only64Bit=*/true) ==
             llvm::X86::CK_None) {
    error = ("expects a processor that LLVM knows for --target-cpu, such as "
             "x86-64-v3, got '" +
             cpu + "'")
                .str();
    return false;
  } else {
    llvm::SmallVector<llvm::StringRef> all;
    llvm::X86::getFeaturesForCPU(cpu, all);
    for (llvm::StringRef feature : all)
      if (!llvm::is_contained(kSystemFeatures, feature))
        names.push_back(feature.str());
  }
  llvm::StringMap<bool> has;
  for (const std::string &name : names) {
    has[name] = true;
    llvm::X86::updateImpliedFeatures(name, /*Enabled=*/true, has);
  }
  llvm::SmallVector<llvm::StringRef> missing;
  for (const auto &[feature, name] : kNeededFeatures)
    if (!has.lookup(feature))
      missing.push_back(name);
  if (!missing.empty()) {
    error = ("expects a processor with AVX2, FMA and F16C for --target-cpu, "
             "such as x86-64-v3, got '" +
             cpu + "' without " + llvm::join(missing, ", "))
                .str();
    return false;
  }
  // A virtual machine may hide some of those that the processor's name stands for.
  if (cpu == "native")
    features = withSign(hostFeatures(/*has=*/false), "-");
  features += (features.empty() ? "" : ",") + withSign(names, "+");
  return true;
}

//===----------------------------------------------------------------------===//
// AArch64
//===----------------------------------------------------------------------===//

/// Features that code may use (runtime/src/cpu/aarch64/processor.cpp finds them).
static constexpr llvm::StringLiteral kUsedFeatures[] = {
    "fp-armv8", "neon",    "aes",    "sha2",      "crc",   "lse",
    "fullfp16", "rdm",     "jsconv", "complxnum", "rcpc",  "sha3",
    "dotprod",  "fp16fml", "lse2",   "rcpc-immo", "flagm", "altnzcv",
    "fptoint",  "i8mm",    "bf16"};

/// The same of AArch64. What code may not use is switched off: scalable vectors among it.
static bool featuresOfAArch64(llvm::StringRef cpu, std::string &features,
                              std::string &error) {
  llvm::SmallVector<std::string> has;
  std::vector<llvm::StringRef> known;
  if (cpu == "native") {
    has = hostFeatures();
  } else if (auto info = llvm::AArch64::parseCpu(cpu)) {
    llvm::AArch64::getExtensionFeatures(info->DefaultExtensions, known);
    for (llvm::StringRef feature : known)
      has.push_back(feature.drop_front().str());
  } else if (cpu == "generic") {
    has = {"fp-armv8", "neon"};
  } else {
    error = ("expects a processor that LLVM knows for --target-cpu, such as "
             "neoverse-n1 or generic, got '" +
             cpu + "'")
                .str();
    return false;
  }
  llvm::SmallVector<std::string> used, unused;
  for (const std::string &feature : has)
    (llvm::is_contained(kUsedFeatures, feature) ? used : unused)
        .push_back(feature);
  if (!llvm::is_contained(used, "neon")) {
    error = ("expects a processor with vectors (neon) for --target-cpu, such "
             "as neoverse-n1, got '" +
             cpu + "'")
                .str();
    return false;
  }
  features = withSign(unused, "-");
  features += (features.empty() ? "" : ",") + withSign(used, "+");
  return true;
}

//===----------------------------------------------------------------------===//
// Machines
//===----------------------------------------------------------------------===//

/// The triple that is meant, if there is a runtime for it.
static bool chooseTriple(llvm::StringRef wanted, llvm::Triple &triple,
                         std::string &error) {
  llvm::Triple host(llvm::sys::getDefaultTargetTriple());
  triple =
      wanted.empty() ? host : llvm::Triple(llvm::Triple::normalize(wanted));
  bool known = triple.isX86_64() || triple.getArch() == llvm::Triple::aarch64;
  if (known && triple.isOSLinux())
    return true;
  error = ("expects --target-triple=x86_64-linux-gnu or aarch64-linux-gnu, for "
           "which there is a runtime, got '" +
           (wanted.empty() ? triple.str() : wanted.str()) + "'");
  return false;
}

std::unique_ptr<llvm::TargetMachine>
trainc::createTargetMachine(llvm::StringRef wanted, llvm::StringRef cpu,
                            unsigned optimize, std::string &error) {
  llvm::InitializeAllTargetInfos();
  llvm::InitializeAllTargets();
  llvm::InitializeAllTargetMCs();
  llvm::InitializeAllAsmPrinters();
  llvm::Triple triple;
  if (!chooseTriple(wanted, triple, error))
    return nullptr;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  llvm::Triple host(llvm::sys::getDefaultTargetTriple());
  if (cpu == "native" && host.getArch() != triple.getArch()) {
    error = "expects --target-cpu of another architecture, " +
            triple.getArchName().str() + ", by its name, got 'native'";
    return nullptr;
  }
  std::string features;
  if (!(triple.isX86_64() ? featuresOfX86(cpu, features, error)
                          : featuresOfAArch64(cpu, features, error)))
    return nullptr;
  if (cpu == "native")
    cpu = llvm::sys::getHostCPUName();
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, cpu, features, options, llvm::Reloc::PIC_, std::nullopt,
      optimize == 0 ? llvm::CodeGenOptLevel::None
                    : llvm::CodeGenOptLevel::Default));
}

bool trainc::hasFeatures(const llvm::TargetMachine &machine,
                         llvm::ArrayRef<llvm::StringRef> features) {
  auto has = llvm::split(machine.getTargetFeatureString(), ",");
  return llvm::all_of(features, [&](llvm::StringRef feature) {
    return llvm::is_contained(has, ("+" + feature).str());
  });
}

std::unique_ptr<llvm::TargetMachine>
trainc::cloneTargetMachine(const llvm::TargetMachine &machine) {
  return std::unique_ptr<llvm::TargetMachine>(
      machine.getTarget().createTargetMachine(
          machine.getTargetTriple(), machine.getTargetCPU(),
          machine.getTargetFeatureString(), machine.Options,
          machine.getRelocationModel(), std::nullopt, machine.getOptLevel()));
}
