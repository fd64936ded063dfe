//===- products.h - Products of matrices on a GPU ---------------*- C++ -*-===//
//
// GEMM commands by cuBLASLt. A matrix that is row major is, column major, its
// transpose; so C is computed as C^T = B'^T A'^T, where cuBLASLt's A is our B.
//
// What a product is computed by depends on its detail, the alignment of its operands,
// the device and the version of cuBLASLt. Sums are in f32 (f64 of f64), also those
// of parts of k, and f32 stays f32: TF32 only with TRAINC_BACK_END_CUBLASLT_TF32.
//
// Where cuBLASLt has no algorithm for a product with its bias, epilogue or bias gradient
// it computes the product alone, and kernels of the image the rest: first bias and
// gelu, or its slope, on each element, then sums of columns. These start from C as it is
// stored, so that in 16 bits there is one more rounding than in cuBLASLt; the
// arithmetic is f32 (f64 of f64), and a column is added in one order: the rows i, i + 32,
// ... for i < 32, then these 32 sums. Which way a product goes is decided when it is
// planned, and is the same in every run on equal devices and libraries.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CUDA_PRODUCTS_H
#define TRAINC_CUDA_PRODUCTS_H

#include "cuda/device.h"

namespace trainc::cuda {

/// cuBLASLt on a device, and the products planned for it. Calls come from one thread
/// at a time.
struct Products;

/// How a product is computed: the algorithm and what describes the matrices. Belongs
/// to its Products.
struct Product;

/// TRAINC_UNSUPPORTED without cuBLASLt. `module`, which may be null, has the kernels for
/// what cuBLASLt refuses, and outlives the products.
trainc_status openProducts(const Device &device, CUmodule module,
                           Products **out_products);

/// What the user should know of the products that were planned so far, or null.
const char *noticeOf(const Products &products);

/// What uses its products must be done. Null is allowed.
void closeProducts(Products *products);

/// Why cuBLASLt cannot compute the product on any device, as "it ..."; null if it can.
/// After the tables of NVIDIA's documentation of cublasLtMatmul().
const char *refuseProduct(const trainc_gemm_detail &detail);

/// What the addresses of the command's operands are multiples of, at most 256 bytes,
/// if memory of arenas, inputs and outputs begins at multiples of 256.
uint32_t productAlignment(const trainc_command &command);

/// Chooses an algorithm. Equal details and alignments share a product. `alignment` is a
/// power of two that divides the addresses of all operands; slower algorithms do with
/// less. TRAINC_UNSUPPORTED if cuBLASLt cannot do it, not even the product alone. Not
/// during a capture.
/// `choice`: that answer of the library instead of its first one, for measurements.
trainc_status planProduct(Products &products, const trainc_gemm_detail &detail,
                          const Product **out_product, uint32_t alignment = 16,
                          uint32_t choice = 0);

/// Memory that a running product needs, at a multiple of 256. Products that run at the
/// same time each need their own. What NVIDIA recommends for the device.
uint64_t workspaceBytes(const Products &products);

/// Puts the product into the stream, which may be captured. `arguments` are the
/// operands in the order of the command.
trainc_status runProduct(Products &products, const Product &product,
                         const CUdeviceptr *arguments, CUdeviceptr workspace,
                         CUstream stream);

} // namespace trainc::cuda

#endif // TRAINC_CUDA_PRODUCTS_H
