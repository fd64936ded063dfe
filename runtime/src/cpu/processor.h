//===- processor.h - What differs between kinds of CPUs ---------*- C++ -*-===//
#ifndef TRAINC_CPU_PROCESSOR_H
#define TRAINC_CPU_PROCESSOR_H

#include <stdint.h>

namespace trainc {

/// Says to the CPU that this thread only waits.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); // about as long as x86's pause; yield does nothing
#endif
}

/// While alive, this thread computes in the default floating-point environment
/// (nearest even, denormals kept), whatever the program has set.
class DefaultFloats {
public:
  DefaultFloats() : saved(read()) {
    if (saved != byDefault)
      write(byDefault);
  }
  ~DefaultFloats() {
    if (saved != byDefault)
      write(saved);
  }
  DefaultFloats(const DefaultFloats &) = delete;
  DefaultFloats &operator=(const DefaultFloats &) = delete;

private:
#if defined(__x86_64__)
  typedef uint32_t Control; // MXCSR
  static constexpr Control byDefault = 0x1F80;
  static Control read() { return __builtin_ia32_stmxcsr(); }
  static void write(Control control) { __builtin_ia32_ldmxcsr(control); }
#elif defined(__aarch64__)
  typedef uint64_t Control; // FPCR
  static constexpr Control byDefault = 0;
  static Control read() {
    Control control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void write(Control control) {
    __asm__ volatile("msr fpcr, %0" ::"r"(control) : "memory");
  }
#else
#error "the runtime is for x86-64 and AArch64"
#endif

  Control saved;
};

} // namespace trainc

#endif // TRAINC_CPU_PROCESSOR_H
