//===- TrainModelOps.td - Parameters, optimizers, schedules -*- tablegen -*-===//
#ifndef TRAINC_TRAIN_MODEL_OPS
#define TRAINC_TRAIN_MODEL_OPS

include "trainc/Dialect/Train/TrainDialect.td"

def Train_ParamOp : Train_Op<"param", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "a trainable tensor";
  let description = [{
    The name is the checkpoint's name. `init` gives the initial values:
    `zeros`, `ones`, `constant<v>`, `normal<deviation>`, `normal<mean, deviation>`,
    `truncated_normal<mean, deviation>` (cut at two deviations), `uniform<low, high>`,
    or a dense attribute. They depend on seed, name and element index only.
    `frozen`: never updated; it has no gradient and no state. `split([], [model])` says
    over which axes of the module's `train.mesh` each dimension is split, as for the
    inputs of a `train.step`; `blocks [1, 3]`, that each dimension is as many ranges of
    equal size, and each of these is split: q, k and v side by side are three. Shapes in a
    source are global; behind `train-partition` the type is that of the part of one rank,
    `of` the type of all parts together. `train-plan-step` sets `window`, that of the steps
    which train it, unless it is the module's first.

    (C1) the type is a float tensor of static shape and 1 to 2^40 elements; (C2) a
    parameter has an optimizer unless it is frozen, and a frozen one has none; (C3) the
    optimizer is a train.optimizer of the module; (C4) init names a known distribution with its number
    of arguments, or lists the elements of the parameter's type; (C5) a split names axes of the mesh, each
    once, in at most one list per dimension; (C6) what it is `of` has its element type;
    along each dimension the size is that of a part of each block, rounded up; (C7) blocks are
    one for each dimension of a type with a split, at least 1, and divide the sizes; (C8) the
    name is UTF-8 without zero bytes, and none that a checkpoint has for something else:
    `__metadata__`, or one that begins with `scalar/`, `optimizer/`, `gradient/` or `rank/`.

    ```mlir
    train.param @fc1.weight : tensor<64x128xf32> init(normal<0.02>) optimizer(@decayed)
    train.param @table : tensor<8x4xf32> init(zeros) frozen
    train.param @fc2.weight : tensor<64x64xf32> init(zeros) optimizer(@o) split([model]) of tensor<128x64xf32>
    train.param @qkv.weight : tensor<64x192xf32> init(zeros) optimizer(@o) split([], [model]) blocks [1, 3]
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<AnyRankedTensor>:$type, AnyAttr:$init,
                       OptionalAttr<FlatSymbolRefAttr>:$optimizer, UnitAttr:$frozen,
                       OptionalAttr<ArrayAttr>:$split, OptionalAttr<DenseI64ArrayAttr>:$blocks,
                       OptionalAttr<TypeAttrOf<AnyRankedTensor>>:$whole,
                       OptionalAttr<StrAttr>:$window);
  let assemblyFormat = [{
    $sym_name `:` $type `init` `(` custom<Init>($init) `)` (`optimizer` `(` $optimizer^ `)`)?
    (`frozen` $frozen^)? (`split` `(` custom<Split>($split)^ `)`)? (`blocks` $blocks^)? (`of` $whole^)?
    attr-dict
  }];
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() {
      return ::llvm::cast<::mlir::RankedTensorType>(getType());
    }
    /// The type of all ranks' parts together.
    ::mlir::RankedTensorType getWholeType() {
      return ::llvm::cast<::mlir::RankedTensorType>(getWhole().value_or(getType()));
    }
    /// The axes along which ranks have different parts of it, in the mesh's order.
    ::mlir::ArrayAttr getPartAxes();
  }];
  let hasVerifier = 1;
}

def Train_BufferOp : Train_Op<"buffer", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "a persistent tensor that is not trained";
  let description = [{
    Running statistics, counters. A step reads it with `train.read` and replaces it
    with `train.write`: reads behind that give the new value, and have its gradient. The
    last one written stays for the next micro-step.

    (C1) init names a known distribution with its number of arguments, or lists
    the elements of the buffer's type; (C2) the type is a tensor of numbers, of static shape and 1 to 2^40
    elements; (C3) the name is as a parameter's.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<AnyRankedTensor>:$type, AnyAttr:$init);
  let assemblyFormat = "$sym_name `:` $type `init` `(` custom<Init>($init) `)` attr-dict";
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() {
      return ::llvm::cast<::mlir::RankedTensorType>(getType());
    }
  }];
  let hasVerifier = 1;
}

def Train_ScheduleOp : Train_Op<"schedule", [Symbol, IsolatedFromAbove, HasParent<"::mlir::ModuleOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "a scalar as a function of the number of updates";
  let description = [{
    Either a named schedule with its parameters, which `train-expand-optimizers`
    turns into a region, or a scalar region. The region's first argument is the number
    of updates done so far (0 at the first), the others are the values listed in
    `hyper`, in that order; all are f64. It yields one f64. Each value in `hyper` is a
    run-time scalar named `<schedule>.<name>` with the given initial value.

    (C1) exactly one of kind and region; (C2) the region takes 1 + hyper f64 arguments
    and yields one f64; (C3) the region holds side-effect-free scalar arith and math ops
    only; (C4) numbers are finite, and names UTF-8 without zero bytes.

    ```mlir
    train.schedule @lr = warmup_cosine<peak = 1.0e-3, warmup = 100, total = 2000>
    train.schedule @mine(%t: f64, %base: f64) hyper(base = 0.1) {
      %one = arith.constant 1.0 : f64
      %d = arith.addf %one, %t : f64
      %v = arith.divf %base, %d : f64
      train.yield %v : f64
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$kind,
                       StrArrayAttr:$hyper_names, ArrayAttr:$hyper_values);
  let regions = (region MaxSizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Train_OptimizerOp : Train_Op<"optimizer", [Symbol, IsolatedFromAbove, HasParent<"::mlir::ModuleOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "a parameter group and its update rule";
  let description = [{
    Either a named optimizer with its hyperparameters, which `train-expand-optimizers`
    turns into regions, or the update itself as a scalar region. The region computes one
    element: its arguments are the parameter, the gradient (averaged, unscaled and
    clipped), the states in the order of `state`, and the values of `hyper` in that
    order; it yields the new parameter and the new states. Parameter, gradient and
    states have the type in which the parameter's elements are computed (f32 for bf16 and
    f16); a hyper argument is f64 or that type (rounded from the f64 scalar).

    A value in `hyper` is a number (the initial value of a run-time scalar named
    `<optimizer>.<name>`), a schedule (its current value), or the string "update" (the
    1-based number of this update). A value in `state` is its initial value.

    With a second region, the first yields a direction u in place of the new parameter,
    and the second computes the new parameter and states from: parameter, u, the L2
    norms over the whole parameter of the parameter and of u (of that type),
    the states that the first yields, and the values of `hyper` again (lamb, lars).

    `orthogonal<...>` (muon) replaces the direction u of a matrix, before the second region,
    by `scale` times its nearest matrix of orthonormal rows or columns, by Newton-Schulz:
    x = u / max(|u|, eps), then `steps` times x = a x + (b A + c A A) x with A = x x^T (of
    rows > columns x = a x + x (b A + c A A) with A = x^T x). `bf16 = true` rounds x and the
    products to bf16. `scale` is sqrt(max(1, rows / columns)); sqrt(rows / columns) with
    `unclamped = true`; 0.2 sqrt(max(rows, columns)) with `match_rms = true`. The norms that
    the second region gets are 0. Every rank computes it whole: parameters in parts and
    `--shard` other than `none` are refused.

    `clip(false)` leaves the group out of the step's clip: out of the norm and of the
    scaling. `ema(d)` keeps a moving average of the parameter, e' = d e + (1 - d) p',
    as state `ema`; d is the run-time scalar `<optimizer>.ema`. The average starts at the
    parameter's initial value.

    (C1) exactly one of kind and region; (C2) block arguments are 2 + states + hyper
    (second region: 4 + states + hyper) with the types above; (C3) each region yields
    1 + states values of that type; (C4) regions hold side-effect-free scalar
    arith and math ops only; (C5) a symbol in hyper is a train.schedule; (C6)
    numbers are finite, and names UTF-8 without zero bytes, those of states without `/`, too;
    (C7) `orthogonal` has a second region, all eight values, at most one of
    `match_rms` and `unclamped`, and from 1 to 100 steps.

    ```mlir
    train.optimizer @decayed = adamw<lr = @lr, weight_decay = 0.1>
    train.optimizer @sign(%p: f32, %g: f32, %m: f32, %lr: f32) state(m = 0.0) hyper(lr = @lr) {
      ...
      train.yield %p1, %m1 : f32, f32
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$kind,
                       StrArrayAttr:$state_names, F64ArrayAttr:$state_values,
                       StrArrayAttr:$hyper_names, ArrayAttr:$hyper_values,
                       OptionalAttr<F64Attr>:$ema, DefaultValuedAttr<BoolAttr, "true">:$clip,
                       OptionalAttr<DictionaryAttr>:$orthogonal);
  let regions = (region MaxSizedRegion<1>:$body, MaxSizedRegion<1>:$scaled);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

#endif // TRAINC_TRAIN_MODEL_OPS
