//===- EpilogueKernels.cpp - What follows a product, apart from it --------===//
//
// Kernels for what a GEMM has beside its product: bias, gelu and its slope, sums of
// columns. The runtime launches them behind a product where cuBLASLt has no algorithm
// for the whole (step_abi.h, trainc_gemm_detail). They are of any size.
//
//===----------------------------------------------------------------------===//
#include "EpilogueKernels.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace trainc;

/// Elements of what is not known: as many as there may be.
static constexpr llvm::StringLiteral kEpilogue = R"mlir(
gpu.module @kernels {
  gpu.func @NAME(%c: memref<1099511627776xTO>, %bias: memref<1099511627776xTO>, %aux: memref<1099511627776xTO>, %rows: i64, %columns: i64, %stride: i64, %how: i32) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %c256 = arith.constant 256 : index
    %block = gpu.block_id x
    %thread = gpu.thread_id x
    %first = arith.muli %block, %c256 : index
    %number = arith.addi %first, %thread : index
    %m = arith.index_cast %rows : i64 to index
    %n = arith.index_cast %columns : i64 to index
    %ld = arith.index_cast %stride : i64 to index
    %all = arith.muli %m, %n : index
    %inside = arith.cmpi ult, %number, %all : index
    scf.if %inside {
      %row = arith.divui %number, %n : index
      %column = arith.remui %number, %n : index
      %begin = arith.muli %row, %ld : index
      %at = arith.addi %begin, %column : index
      %none = arith.constant 0 : i32
      %one = arith.constant 1.0 : WIDE
      %half = arith.constant 0.5 : WIDE
      %root = arith.constant 0.79788456080286535588 : WIDE
      %cubic = arith.constant 0.035677408136300125 : WIDE
      %slope3 = arith.constant 0.107032224408900375 : WIDE
      %product = memref.load %c[%at] : memref<1099511627776xTO>
      %x = WIDEN(%product)
      %flag_bias = arith.constant 1 : i32
      %bits_bias = arith.andi %how, %flag_bias : i32
      %has_bias = arith.cmpi ne, %bits_bias, %none : i32
      %biased = scf.if %has_bias -> WIDE {
        %stored = memref.load %bias[%column] : memref<1099511627776xTO>
        %b = WIDEN(%stored)
        %sum = arith.addf %x, %b : WIDE
        scf.yield %sum : WIDE
      } else {
        scf.yield %x : WIDE
      }
      %flag_keep = arith.constant 2 : i32
      %bits_keep = arith.andi %how, %flag_keep : i32
      %keeps = arith.cmpi ne, %bits_keep, %none : i32
      scf.if %keeps {
        %kept = NARROW(%biased)
        memref.store %kept, %aux[%at] : memref<1099511627776xTO>
      }
      %flag_slope = arith.constant 8 : i32
      %bits_slope = arith.andi %how, %flag_slope : i32
      %has_slope = arith.cmpi ne, %bits_slope, %none : i32
      %of = scf.if %has_slope -> WIDE {
        %stored = memref.load %aux[%at] : memref<1099511627776xTO>
        %a = WIDEN(%stored)
        scf.yield %a : WIDE
      } else {
        scf.yield %biased : WIDE
      }
      %flag_gelu = arith.constant 12 : i32
      %bits_gelu = arith.andi %how, %flag_gelu : i32
      %has_gelu = arith.cmpi ne, %bits_gelu, %none : i32
      %y = scf.if %has_gelu -> WIDE {
        %square = arith.mulf %of, %of : WIDE
        %factor = math.fma %square, %cubic, %root : WIDE
        %inner = arith.mulf %of, %factor : WIDE
        %t = math.tanh %inner : WIDE
        %h = arith.mulf %of, %half : WIDE
        %gelu = math.fma %h, %t, %h : WIDE
        %minus = arith.negf %t : WIDE
        %dt = math.fma %minus, %t, %one : WIDE
        %dinner = math.fma %square, %slope3, %root : WIDE
        %dinnerdt = arith.mulf %dt, %dinner : WIDE
        %mean = math.fma %half, %t, %half : WIDE
        %slope = math.fma %h, %dinnerdt, %mean : WIDE
        %scaled = arith.mulf %biased, %slope : WIDE
        %result = arith.select %has_slope, %scaled, %gelu : WIDE
        scf.yield %result : WIDE
      } else {
        scf.yield %biased : WIDE
      }
      %stored = NARROW(%y)
      memref.store %stored, %c[%at] : memref<1099511627776xTO>
    }
    gpu.return
  }
}
)mlir";

/// 32 columns for each block: thread (i, j) of 32 x 32 adds the rows i, i + 32, ... of
/// column j, then the first row of threads adds the 32 sums.
static constexpr llvm::StringLiteral kColumnSums = R"mlir(
#shared = #gpu.address_space<workgroup>
gpu.module @kernels {
  gpu.func @NAME(%x: memref<1099511627776xFROM>, %sums: memref<1099511627776xTO>, %rows: i64, %columns: i64, %stride: i64) workgroup(%parts: memref<1024xWIDE, #shared>) kernel attributes {known_block_size = array<i32: 1024, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    %zero = arith.constant 0.0 : WIDE
    %block = gpu.block_id x
    %thread = gpu.thread_id x
    %i = arith.divui %thread, %c32 : index
    %j = arith.remui %thread, %c32 : index
    %first = arith.muli %block, %c32 : index
    %column = arith.addi %first, %j : index
    %m = arith.index_cast %rows : i64 to index
    %n = arith.index_cast %columns : i64 to index
    %ld = arith.index_cast %stride : i64 to index
    %inside = arith.cmpi ult, %column, %n : index
    %end = arith.select %inside, %m, %c0 : index
    %mine = scf.for %row = %i to %end step %c32 iter_args(%sum = %zero) -> WIDE {
      %begin = arith.muli %row, %ld : index
      %at = arith.addi %begin, %column : index
      %stored = memref.load %x[%at] : memref<1099511627776xFROM>
      %v = FROMWIDEN(%stored)
      %next = arith.addf %sum, %v : WIDE
      scf.yield %next : WIDE
    }
    memref.store %mine, %parts[%thread] : memref<1024xWIDE, #shared>
    gpu.barrier
    %adds = arith.cmpi eq, %i, %c0 : index
    %writes = arith.andi %adds, %inside : i1
    scf.if %writes {
      %total = scf.for %k = %c0 to %c32 step %c1 iter_args(%sum = %zero) -> WIDE {
        %begin = arith.muli %k, %c32 : index
        %at = arith.addi %begin, %j : index
        %v = memref.load %parts[%at] : memref<1024xWIDE, #shared>
        %next = arith.addf %sum, %v : WIDE
        scf.yield %next : WIDE
      }
      %stored = NARROW(%total)
      memref.store %stored, %sums[%column] : memref<1099511627776xTO>
    }
    gpu.return
  }
}
)mlir";

static std::string replaceAll(std::string text, StringRef what, StringRef by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos;
       at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

/// Replaces each `name`(%value) by a conversion.
static std::string convert(std::string text, StringRef name, StringRef op,
                           StringRef from, StringRef to) {
  std::string begin = (name + "(").str();
  for (size_t at; (at = text.find(begin)) != std::string::npos;) {
    size_t end = text.find(')', at);
    std::string value = text.substr(at + begin.size(), end - at - begin.size());
    text.replace(at, end + 1 - at,
                 ((from == to ? "arith.bitcast" : op) + " " + value + " : " +
                  from + " to " + to)
                     .str());
  }
  return text;
}

LogicalResult trainc::addEpilogueKernel(gpu::GPUModuleOp target,
                                        StringRef name) {
  StringRef from, to, rest = name;
  StringRef text = kColumnSums;
  if (rest.consume_front("trainc_column_sums_")) {
    std::tie(from, to) = rest.split('_');
  } else if (rest.consume_front("trainc_epilogue_")) {
    text = kEpilogue;
    from = to = rest;
  }
  for (StringRef type : {from, to})
    if (!is_contained({"f64", "f32", "bf16", "f16"}, type))
      return target.emitError("there is no epilogue kernel '") << name << "'";
  StringRef wide = to == "f64" ? "f64" : "f32";
  std::string code = text.str();
  code = convert(code, "FROMWIDEN", "arith.extf", from, wide);
  code = convert(code, "WIDEN", "arith.extf", to, wide);
  code = convert(code, "NARROW", "arith.truncf", wide, to);
  code = replaceAll(code, "FROM", from);
  code = replaceAll(code, "TO", to);
  code = replaceAll(code, "WIDE", wide);
  code = replaceAll(code, "NAME", name);
  auto module = parseSourceString<ModuleOp>(code, target.getContext());
  assert(module && "the text of a kernel is right");
  auto kernels = *module->getOps<gpu::GPUModuleOp>().begin();
  OpBuilder b = OpBuilder::atBlockEnd(target.getBody());
  for (auto function : kernels.getOps<gpu::GPUFuncOp>())
    b.clone(*function);
  return success();
}
