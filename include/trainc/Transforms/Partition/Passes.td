//===- Passes.td - What one of several ranks computes (form 0) -*- tablegen -*-
#ifndef TRAINC_TRANSFORMS_PARTITION_PASSES
#define TRAINC_TRANSFORMS_PARTITION_PASSES

include "mlir/Pass/PassBase.td"

def PartitionPass : Pass<"train-partition", "::mlir::ModuleOp"> {
  let summary = "Turn global shapes into those of one rank";
  let description = [{
    Each rank runs the same code on its part of what the splits of inputs and parameters
    cut. Parts are propagated forward, by the rule of each op (`ShardableOpInterface`): a
    value is split over axes of the mesh, whole, or a sum of what the ranks have. A split
    may be of each of several equal blocks of a dimension. Parameters that are split get
    the type of their part; their gradients are sums over the other axes alone.

    - A sum stays one through ops that are linear in it, and as loss and weight, which
      are those of all ranks together (`over`). Elsewhere, and as an output of an eval
      or in a buffer, `train.all_reduce` adds.
    - A whole value beside a split one is cut to this rank's part (`nn.part`, or computed
      in part if it is a constant, an iota or pointwise of these).
    - A loss or weight that is whole over an axis is divided by the number of ranks there.
    - An op that needs all of what is split (the batch, of a training nn.batch_norm) is
      decomposed, so that its statistics are those of all ranks. What is reduced
      otherwise than by sums is gathered and reduced again (`train.all_gather`).
    - An embedding of a part of a table gives zeros for the rows of other parts, and so a
      sum.
    - A dropout draws for its elements what it draws for them in the whole tensor.
    - A dimension of a parameter need not divide: the last parts are filled up. What fills
      them never counts: it is replaced by zeros before it is summed, by infinities before
      a maximum, and by ones before a function that could make it infinite.
    - A `train.constrain` gives a value the split that it names. Of a sum that nothing else
      uses each rank adds up its part alone (`train.reduce_scatter`), if that divides; what
      is whole and is added to it, as a bias is, then comes behind.
    - An output of an eval that is split stays so (`output_splits`), if it divides and is
      one block; else it is gathered.

    Refuses inputs whose sizes do not divide, blocks that do not, operands split in
    conflict, an axis `pipe`, and axes of several ranks over which no input and no
    parameter is split (unless some inputs are gradients).

    Needs form 0 with calls inlined and dropouts numbered. Where all axes have one rank
    it erases the splits alone; it does nothing without a mesh, or a second time. Runs after
    `train-insert-casts`: what ranks exchange, and sum, has the type in which it is computed.

    Example: test/Transforms/Partition/partition.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
  let statistics = [Statistic<"numSplit", "split", "Ops done in parts">,
                    Statistic<"numReduced", "reduced", "Sums over ranks inserted">,
                    Statistic<"numScattered", "scattered", "Sums of which each rank adds up its part">,
                    Statistic<"numGathered", "gathered", "Parts gathered">,
                    Statistic<"numJoined", "joined", "Other reductions over ranks inserted">,
                    Statistic<"numCut", "cut", "Whole values cut to a part">,
                    Statistic<"numDecomposed", "decomposed", "Ops decomposed">];
}

#endif // TRAINC_TRANSFORMS_PARTITION_PASSES
