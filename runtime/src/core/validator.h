//===- validator.h - Checks of an artifact's tables -------------*- C++ -*-===//
//
// For validate.cpp, which checks what an artifact has, and validate_commands.cpp, which
// checks what its commands do.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_VALIDATOR_H
#define TRAINC_CORE_VALIDATOR_H

#include "core/artifact.h"

namespace trainc {

/// As NumPy's arrays and the reader of checkpoints have.
static constexpr uint32_t mostDimensions = 64;

class Validator {
public:
  explicit Validator(const trainc_descriptor &d) : d(d) {}

  trainc_status run() {
    TRAINC_TRY(checkPointers());
    TRAINC_TRY(checkMesh());
    TRAINC_TRY(checkKernels());
    TRAINC_TRY(checkArenas());
    TRAINC_TRY(checkScalars());
    TRAINC_TRY(checkTensors());
    TRAINC_TRY(checkNames());
    for (uint32_t i = 0; i < d.num_entries; ++i)
      TRAINC_TRY(checkEntry(d.entries[i]));
    return TRAINC_OK;
  }

private:
  uint64_t countRanks(uint32_t axes);
  bool haveAxes(uint64_t axes);
  trainc_status checkPointers();
  trainc_status checkMesh();
  trainc_status checkKernels();
  trainc_status checkArenas();
  trainc_status checkBuckets(const trainc_arena &arena);
  trainc_status checkScalars();
  trainc_status checkTensors();
  trainc_status checkSplits(const trainc_tensor &tensor);
  bool partBytesOf(const trainc_tensor &tensor, uint64_t &bytes);
  trainc_status checkNames();
  trainc_status checkEntry(const trainc_entry &entry);
  trainc_status checkPorts(const trainc_entry &entry, const trainc_port *ports,
                           uint32_t count);
  trainc_status checkCommand(const trainc_entry &entry,
                             const trainc_command &command);
  trainc_status checkOperand(const trainc_entry &entry,
                             const trainc_command &command,
                             const trainc_operand &operand);
  trainc_status checkGemm(const trainc_command &command);
  trainc_status checkConvolution(const trainc_command &command);
  trainc_status checkCollective(const trainc_command &command);
  trainc_status checkPhases(const trainc_entry &entry, int first, int last,
                            int step);
  trainc_status checkPhases(const trainc_entry &entry);

  /// The bytes of a dense tensor; false on overflow or a negative size.
  static bool bytesOf(uint32_t dtype, uint32_t rank, const int64_t *dims,
                      uint64_t &bytes) {
    bytes = trainc_dtype_size(dtype);
    bool valid = bytes != 0 && rank <= mostDimensions && (!rank || dims);
    for (uint32_t i = 0; valid && i < rank; ++i)
      valid = valid && dims[i] >= 0 &&
              !__builtin_mul_overflow(bytes, static_cast<uint64_t>(dims[i]),
                                      &bytes);
    return valid;
  }

  bool isGpu() const { return d.target == TRAINC_TARGET_CUDA; }

  const trainc_descriptor &d;
};

/// Fails, as the artifact is damaged.
__attribute__((format(printf, 1, 2))) trainc_status bad(const char *format,
                                                        ...);

} // namespace trainc

#endif // TRAINC_CORE_VALIDATOR_H
