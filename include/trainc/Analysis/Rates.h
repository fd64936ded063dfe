//===- Rates.h - How fast machines are --------------------------*- C++ -*-===//
#ifndef TRAINC_ANALYSIS_RATES_H
#define TRAINC_ANALYSIS_RATES_H

#include "trainc/step_abi.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/LogicalResult.h"
#include <map>
#include <optional>
#include <string>

namespace trainc {

/// Rates of a machine by name, with one rank per device as in training:
///   memory, update          bytes per second of kernels, of updates (memory)
///   f64, f32, bf16, f16     flops per second of GEMMs
///   attention, convolution  flops per second of kernels (GEMMs of their type)
///   command                 seconds between two commands (0)
///   reduce_scatter, all_reduce, all_gather, or network for all of them
///                           bytes per second of collectives
///   latency                 seconds of an empty collective (0)
///   network.AXIS            bytes per second, the most along AXIS of the mesh
///                           (no limit)
/// In parentheses what holds where they are not given. Rates of collectives are
/// those of the bus, as in NCCL's tests: n ranks that gather or scatter a range
/// of b bytes move (n - 1) / n b, twice that to sum it up for all.
class Rates {
public:
  /// Those of `measured`, and of all others in a command what is assumed of a
  /// CPU or a GPU: for choices that change no bits. They also have the peak of
  /// vector units.
  static Rates assume(bool gpu, const Rates &measured = {});

  static bool isName(llvm::StringRef name);
  /// All names, for messages.
  static std::string listNames();

  /// Sets the rate in `given`, "name=number": above 0, with a suffix from n, u,
  /// m, K, M, G and T, in powers of 1000. Failure, and nothing is set, if that
  /// is not what it is.
  llvm::LogicalResult parse(llvm::StringRef given);
  void set(llvm::StringRef name, double rate) { rates[name.str()] = rate; }
  std::optional<double> find(const llvm::Twine &name) const;
  /// The first of `names` that is known.
  std::optional<double> findOne(llvm::ArrayRef<llvm::StringRef> names) const;

  auto begin() const { return rates.begin(); }
  auto end() const { return rates.end(); }

private:
  std::map<std::string, double> rates;
};

inline constexpr llvm::StringLiteral kCommandRate = "command",
                                     kLatencyRate = "latency",
                                     kNetworkRate = "network";

/// The rate of a collective; its command is of kind
/// TRAINC_COMMAND_REDUCE_SCATTER, ALL_REDUCE or ALL_GATHER.
llvm::StringRef nameOfCollective(trainc_command_kind kind);

/// The rate of matrix multiplications with factors of a trainc_dtype.
trainc_rate rateOfType(uint32_t dtype);

/// What the time of a launch, GEMM or copy depends on.
struct Load {
  trainc_rate rate;
  /// That of matrix multiplications of its element type.
  trainc_rate ofType;
  /// Arithmetic of the unit that `rate` is of, see flopsOf in Cost.h; bytes of
  /// operands, of those that are read and written twice.
  double flops, bytes;

  llvm::StringRef getRateName() const;
  /// Whether `rate` is of flops, and not of bytes.
  bool isOfFlops() const;
  /// The names of which Rates has to know one to tell its seconds: `rate`, or
  /// what stands for it.
  llvm::SmallVector<llvm::StringRef, 2> getNeededRates() const;
};

/// The time of a command by the roofline: the longer of its arithmetic and of
/// its bytes, as far as `rates` knows their peaks. None if it knows none of
/// load.getNeededRates().
std::optional<double> secondsOf(const Load &load, const Rates &rates);

} // namespace trainc

#endif // TRAINC_ANALYSIS_RATES_H
