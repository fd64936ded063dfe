//===- Rates.cpp - How fast machines are ----------------------------------===//
#include "trainc/Analysis/Rates.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cmath>

using namespace llvm;
using namespace trainc;

namespace {
struct RateKind {
  StringLiteral name;
  bool flops;
};

struct AssumedRate {
  StringLiteral name;
  double cpu, gpu;
};
} // namespace

static constexpr RateKind kinds[] = {
#define TRAINC_RATE(NAME, number, text, flops) {text, flops},
#include "trainc/step_abi.def"
};

static constexpr StringLiteral collectives[] = {"reduce_scatter", "all_reduce",
                                                "all_gather"};

/// Of a few cores, and of a large GPU: choices need their ratios only.
static constexpr AssumedRate assumedRates[] = {
    {"memory", 1e10, 2e12}, {"f64", 7.5e10, 5e13}, {"f32", 1.5e11, 1e14},
    {"bf16", 3e11, 2e14},   {"f16", 3e11, 2e14},
};

/// Flops per second of vector units, as a part of those of f32 matrix
/// multiplications. No machine is measured by it: a kernel's rate in bytes
/// already has its arithmetic.
static constexpr StringLiteral vectorRate = "vector";
static constexpr double vectorShare = 0.25;

Rates Rates::assume(bool gpu, const Rates &measured) {
  Rates result = measured;
  for (const AssumedRate &rate : assumedRates)
    if (!result.find(rate.name))
      result.set(rate.name, gpu ? rate.gpu : rate.cpu);
  result.set(vectorRate, vectorShare * *result.find("f32"));
  return result;
}

bool Rates::isName(StringRef name) {
  return any_of(kinds,
                [&](const RateKind &kind) { return kind.name == name; }) ||
         is_contained(collectives, name) || name == kNetworkRate ||
         name == kCommandRate || name == kLatencyRate ||
         (name.consume_front("network.") && !name.empty());
}

std::string Rates::listNames() {
  std::string names;
  for (const RateKind &kind : kinds)
    names += kind.name.str() + ", ";
  for (StringRef kind : collectives)
    names += kind.str() + ", ";
  return names + (kCommandRate + ", " + kLatencyRate + ", " + kNetworkRate +
                  " and " + kNetworkRate + ".AXIS")
                     .str();
}

LogicalResult Rates::parse(StringRef given) {
  constexpr std::pair<StringRef, double> suffixes[] = {
      {"n", 1e-9}, {"u", 1e-6}, {"m", 1e-3}, {"K", 1e3},
      {"M", 1e6},  {"G", 1e9},  {"T", 1e12}};
  auto [name, text] = given.split('=');
  double scale = 1, number;
  for (auto [suffix, factor] : suffixes)
    if (text.consume_back(suffix)) {
      scale = factor;
      break;
    }
  if (!isName(name) || text.getAsDouble(number) || !(number > 0) ||
      !std::isfinite(number))
    return failure();
  set(name, number * scale);
  return success();
}

std::optional<double> Rates::find(const Twine &name) const {
  auto it = rates.find(name.str());
  return it == rates.end() ? std::nullopt : std::optional(it->second);
}

std::optional<double> Rates::findOne(ArrayRef<StringRef> names) const {
  for (StringRef name : names)
    if (auto rate = find(name))
      return rate;
  return std::nullopt;
}

StringRef trainc::nameOfCollective(trainc_command_kind kind) {
  return collectives[kind - TRAINC_COMMAND_REDUCE_SCATTER];
}

trainc_rate trainc::rateOfType(uint32_t dtype) {
  switch (dtype) {
  case TRAINC_F64:
    return TRAINC_RATE_F64;
  case TRAINC_BF16:
    return TRAINC_RATE_BF16;
  case TRAINC_F16:
    return TRAINC_RATE_F16;
  default:
    return TRAINC_RATE_F32;
  }
}

StringRef Load::getRateName() const { return kinds[rate].name; }

bool Load::isOfFlops() const { return kinds[rate].flops; }

SmallVector<StringRef, 2> Load::getNeededRates() const {
  SmallVector<StringRef, 2> names{getRateName()};
  if (rate == TRAINC_RATE_UPDATE)
    names.push_back(kinds[TRAINC_RATE_MEMORY].name);
  if (rate == TRAINC_RATE_ATTENTION || rate == TRAINC_RATE_CONVOLUTION)
    names.push_back(kinds[ofType].name);
  return names;
}

std::optional<double> trainc::secondsOf(const Load &load, const Rates &rates) {
  auto own = rates.findOne(load.getNeededRates());
  if (!own)
    return std::nullopt;
  auto other = rates.find(load.isOfFlops() ? kinds[TRAINC_RATE_MEMORY].name
                                           : vectorRate);
  double flops = load.flops, bytes = load.bytes;
  if (load.isOfFlops())
    return std::max(flops / *own, other ? bytes / *other : 0);
  return std::max(bytes / *own, other ? flops / *other : 0);
}
