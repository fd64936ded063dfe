//===- openblas.h - OpenBLAS, opened at run time ----------------*- C++ -*-===//
#ifndef TRAINC_CPU_OPENBLAS_H
#define TRAINC_CPU_OPENBLAS_H

#include "core/status.h"

namespace trainc {

/// The functions of OpenBLAS.
struct OpenBlas {
  void (*sgemm)(int order, int transposeA, int transposeB, int m, int n, int k,
                float alpha, const float *a, int lda, const float *b, int ldb,
                float beta, float *c, int ldc);
  void (*dgemm)(int order, int transposeA, int transposeB, int m, int n, int k,
                double alpha, const double *a, int lda, const double *b,
                int ldb, double beta, double *c, int ldc);
};

/// Values of CBLAS_ORDER and CBLAS_TRANSPOSE.
enum { BLAS_ROW_MAJOR = 101, BLAS_NO_TRANSPOSE = 111, BLAS_TRANSPOSE = 112 };

/// Opens it on the first call: libopenblas.so.0, or the file that
/// TRAINC_OPENBLAS in the environment names. TRAINC_OUT_OF_MEMORY if there is no
/// address space for `threads` that multiply at once.
trainc_status loadOpenBlas(unsigned threads, const OpenBlas **out_blas);

/// While one is alive, OpenBLAS takes one thread for a call, whatever the program that shares it
/// has chosen, which is given back at the end. It does nothing where OpenBLAS is not loaded.
class OneBlasThread {
public:
  OneBlasThread();
  ~OneBlasThread();
  OneBlasThread(const OneBlasThread &) = delete;
  OneBlasThread &operator=(const OneBlasThread &) = delete;

private:
  bool isCounted;
};

/// The address space that it has for threads of this process.
uint64_t openBlasBytes();

/// Version and kernels, or that it is not loaded.
void appendOpenBlas(Text &text);

} // namespace trainc

#endif // TRAINC_CPU_OPENBLAS_H
