// RUN: trainc-opt %s --verify-diagnostics --split-input-file

// expected-error @below {{'train.mesh' op expects at least one axis, and a size for each (C1), got 0 axes and 0 sizes}}
train.mesh @mesh()

// -----

// expected-error @below {{'train.mesh' op expects axes of distinct names (C1), got 'data'}}
train.mesh @mesh(data = 2, data = 4)

// -----

// expected-error @below {{'train.mesh' op expects sizes of at least 1 and at most 65536 ranks in all (C2), got data = 0}}
train.mesh @mesh(data = 0)

// -----

// expected-error @below {{expects sizes of at least 1 and at most 65536 ranks in all (C2), got data = 256}}
train.mesh @mesh(host = 512, data = 256)

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.mesh' op expects to be the only mesh of the module (C3)}}
train.mesh @other(data = 2)

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.param' op expects at most one list per dimension of axes of the mesh, each once (C5), got}}
train.param @w : tensor<4xf32> init(zeros) frozen split([model])

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.param' op expects to be a part of what it is of, by its split (C6), got 'tensor<3xf32>' of 'tensor<8xf32>'}}
train.param @w : tensor<3xf32> init(zeros) frozen split([data]) of tensor<8xf32>

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.param' op expects to be a part of what it is of, by its split (C6), got 'tensor<6xf32>' of 'tensor<10xf64>'}}
train.param @w : tensor<6xf32> init(zeros) frozen split([data]) of tensor<10xf64>

// -----

train.mesh @mesh(a = 2, b = 2, c = 2, d = 2, e = 2, f = 2, g = 2, h = 2, i = 2, one = 1)
train.param @v : tensor<512xf32> init(zeros) frozen split([a, b, c, d, e, f, g, h, one])
// expected-error @below {{'train.param' op expects at most 8 axes of more than one rank per dimension (C5), got ["a", "b", "c", "d", "e", "f", "g", "h", "i"]}}
train.param @w : tensor<512xf32> init(zeros) frozen split([a, b, c, d, e, f, g, h, i])

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.param' op expects a split, and blocks that divide the sizes, one for each dimension (C7), got blocks [3] for 'tensor<8xf32>'}}
train.param @w : tensor<8xf32> init(zeros) frozen split([data]) blocks [3]

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.param' op expects a split, and blocks that divide the sizes, one for each dimension (C7), got blocks [2] for 'tensor<8x4xf32>'}}
train.param @w : tensor<8x4xf32> init(zeros) frozen split([data]) blocks [2]

// -----

// expected-error @below {{'train.step' op expects at most one list per dimension of axes of the mesh, each once (C8), got}}
train.step @step(%x: tensor<4xf32> split([data]), %l: tensor<f32>) {
  train.yield loss(%l) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.step' op expects at most one list per dimension of axes of the mesh, each once (C8), got}}
train.step @step(%x: tensor<4x2xf32> split([data], [data]), %l: tensor<f32>) {
  train.yield loss(%l) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.step' op expects splits of 1 tensors, each a list of axes per dimension (C8), got []}}
train.step @step(%l: tensor<f32>) attributes {input_splits = []} {
  train.yield loss(%l) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.step' op expects at most one list per dimension of axes of the mesh, each once (C8), got}}
train.step @step(%l: tensor<f32>) attributes {over = ["host"]} {
  train.yield loss(%l) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.eval' op expects at most one list per dimension of axes of the mesh, each once (C4), got}}
train.eval @eval(%x: tensor<4xf32> split([data], [])) -> ("x") {
  train.yield %x : tensor<4xf32>
}

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.eval' op expects splits of 1 tensors, each a list of axes per dimension (C4), got [0]}}
train.eval @eval(%x: tensor<4xf32>) -> ("x") attributes {output_splits = [0]} {
  train.yield %x : tensor<4xf32>
}

// -----

func.func @no_mesh() {
  // expected-error @below {{'train.process_index' op expects a train.mesh in the module (C1)}}
  %0 = train.process_index over ["data"] : tensor<i64>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @unknown_axis() {
  // expected-error @below {{'train.process_index' op expects distinct axes of the mesh (C1), got ["host"]}}
  %0 = train.process_index over ["host"] : tensor<i64>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @integers(%x: tensor<4xi32>) {
  // expected-error @below {{'train.all_reduce' op expects elements of a float type (C2), got 'tensor<4xi32>'}}
  %0 = train.all_reduce %x over ["data"] : tensor<4xi32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @piece_of(%x: tensor<4xf32>) {
  // expected-error @below {{'train.all_reduce' op expects in_place with piece_of (C3)}}
  %0 = train.all_reduce %x over ["data"] piece_of ["data"] : tensor<4xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @in_place(%x: tensor<2x4xf32>) {
  // expected-error @below {{'train.all_reduce' op expects a tensor of rank 1, of a multiple of 1 elements, in place (C3), got 'tensor<2x4xf32>'}}
  %0 = train.all_reduce %x over ["data"] in_place : tensor<2x4xf32>
  return
}

// -----

train.mesh @mesh(host = 2, data = 2)
func.func @shards(%x: tensor<5xf32>) {
  // expected-error @below {{'train.all_reduce' op expects a tensor of rank 1, of a multiple of 2 elements, in place (C3), got 'tensor<5xf32>'}}
  %0 = train.all_reduce %x over ["host"] in_place piece_of ["data"] : tensor<5xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @shards(%x: tensor<5xf32>) {
  // expected-error @below {{'train.reduce_scatter' op expects a tensor of rank 1, of a multiple of 2 elements, in place (C3), got 'tensor<5xf32>'}}
  %0 = train.reduce_scatter %x over ["data"] in_place : tensor<5xf32> -> tensor<5xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @in_place(%x: tensor<8xf32>) {
  // expected-error @below {{'train.reduce_scatter' op expects an operand of type 'tensor<4xf32>' (C4), got 'tensor<8xf32>'}}
  %0 = train.reduce_scatter %x over ["data"] in_place : tensor<8xf32> -> tensor<4xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @scattered(%x: tensor<5xf32>) {
  // expected-error @below {{'train.reduce_scatter' op expects an operand of type 'tensor<4xf32>' (C4), got 'tensor<5xf32>'}}
  %0 = train.reduce_scatter %x over ["data"] : tensor<5xf32> -> tensor<2xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @number(%x: tensor<2xf32>) {
  // expected-error @below {{'train.reduce_scatter' op expects pieces of rank 1 or more (C4), got 'tensor<f32>'}}
  %0 = train.reduce_scatter %x over ["data"] : tensor<2xf32> -> tensor<f32>
  return
}

// -----

train.mesh @mesh(data = 2, model = 2)
func.func @order(%x: tensor<3xf32>) {
  // expected-error @below {{'train.all_gather' op expects axes in the order of the mesh (C1), got ["model", "data"]}}
  %0 = train.all_gather %x over ["model", "data"] : tensor<3xf32> -> tensor<12xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @gathered(%x: tensor<3xf32>) {
  // expected-error @below {{'train.all_gather' op expects a result of type 'tensor<6xf32>' (C2), got 'tensor<3xf32>'}}
  %0 = train.all_gather %x over ["data"] : tensor<3xf32> -> tensor<3xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @gathered_in_place(%x: tensor<4xf32>) {
  // expected-error @below {{'train.all_gather' op expects a result of type 'tensor<4xf32>' (C2), got 'tensor<8xf32>'}}
  %0 = train.all_gather %x over ["data"] in_place : tensor<4xf32> -> tensor<8xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @unwaited(%x: tensor<3xf32>) {
  // expected-error @below {{'train.start' op expects a tensor and a token for which a train.wait with a result waits, or buffers with an 'outs' (C6)}}
  %0 = train.start all_gather(%x) over ["data"] : tensor<3xf32> -> !train.token
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @no_result(%x: tensor<3xf32>) {
  // expected-error @below {{'train.start' op expects a tensor and a token for which a train.wait with a result waits}}
  %0 = train.start all_gather(%x) over ["data"] : tensor<3xf32> -> !train.token
  train.wait %0
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @result_size(%x: tensor<3xf32>) {
  // expected-error @below {{'train.start' op expects an operand of type 'tensor<6xf32>' (C3), got 'tensor<5xf32>'}}
  %0 = train.start all_gather(%x) over ["data"] : tensor<3xf32> -> !train.token
  %1 = train.wait %0 : tensor<5xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @result_of_buffers(%x: memref<8xf32>) {
  %0 = train.start reduce_scatter outs(%x) over ["data"] : memref<8xf32> -> !train.token
  // expected-error @below {{'train.wait' op expects a result of a collective on tensors, and of no other (C3)}}
  %1 = train.wait %0 : tensor<8xf32>
  return
}

// -----

train.list @l of @e "apply" (%x: tensor<8xf32>) {
  // expected-error @below {{'train.all_gather' op expects a train.mesh in the module (C1)}}
  %r = train.all_gather %x over ["data"] in_place : tensor<8xf32> -> tensor<8xf32>
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "apply" (%x: tensor<7xf32>) {
  // expected-error @below {{'train.all_gather' op expects a tensor of rank 1, of a multiple of 2 elements, in place (C3), got 'tensor<7xf32>'}}
  %r = train.all_gather %x over ["data"] in_place : tensor<7xf32> -> tensor<7xf32>
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "apply" (%x: tensor<8xf32>) {
  // expected-error @below {{'train.all_reduce' op expects distinct axes of the mesh (C1), got ["data", "data"]}}
  %r = train.all_reduce %x over ["data", "data"] : tensor<8xf32>
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "apply" (%x: tensor<8xf32>) {
  // expected-error @below {{'train.reduce_scatter' op expects distinct axes of the mesh (C1), got ["host"]}}
  %r = train.reduce_scatter %x over ["host"] in_place : tensor<8xf32> -> tensor<8xf32>
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "apply" (%x: tensor<8xi32>) {
  // expected-error @below {{'train.reduce_scatter' op expects elements of a float type (C2), got 'tensor<8xi32>'}}
  %r = train.reduce_scatter %x over ["data"] in_place : tensor<8xi32> -> tensor<8xi32>
  train.return
}

// -----

func.func @flatten_types(%x: tensor<3xf32>, %y: tensor<3xbf16>) {
  // expected-error @below {{'train.flatten' op expects operands of the result's element type (C1), got 'tensor<3xbf16>'}}
  %0 = train.flatten %x, %y at [0, 3] : tensor<3xf32>, tensor<3xbf16> -> tensor<8xf32>
  return
}

// -----

func.func @flatten_rank(%x: tensor<4xf32>) {
  // expected-error @below {{'train.flatten' op expects a result of rank 1 (C1), got 'tensor<2x4xf32>'}}
  %0 = train.flatten %x at [0] : tensor<4xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @flatten_count(%x: tensor<4xf32>) {
  // expected-error @below {{'train.flatten' op expects one slice per operand of a bucket that is not laid out, or one offset per operand (C2), got 2 for 1}}
  %0 = train.flatten %x at [0, 4] : tensor<4xf32> -> tensor<8xf32>
  return
}

// -----

func.func @flatten_slices(%x: tensor<4xf32>) {
  // expected-error @below {{'train.flatten' op expects one slice per operand of a bucket that is not laid out, or one offset per operand (C2), got 2 for 1}}
  %0 = train.flatten %x as [@v, @w] : tensor<4xf32> -> tensor<?xf32>
  return
}

// -----

func.func @flatten_not_laid_out(%x: tensor<4xf32>) {
  // expected-error @below {{'train.flatten' op expects one slice per operand of a bucket that is not laid out, or one offset per operand (C2), got 1 for 1}}
  %0 = train.flatten %x at [0] : tensor<4xf32> -> tensor<?xf32>
  return
}

// -----

func.func @flatten_laid_out(%x: tensor<4xf32>) {
  // expected-error @below {{'train.flatten' op expects one slice per operand of a bucket that is not laid out, or one offset per operand (C2), got 1 for 1}}
  %0 = train.flatten %x as [@w] : tensor<4xf32> -> tensor<8xf32>
  return
}

// -----

func.func @flatten_overlap(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{'train.flatten' op expects ascending offsets of operands that do not overlap within the result (C2), got 3 after 4}}
  %0 = train.flatten %x, %y at [0, 3] : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
  return
}

// -----

func.func @flatten_end(%x: tensor<4xf32>) {
  // expected-error @below {{within the result (C2), got 5 after 0}}
  %0 = train.flatten %x at [5] : tensor<4xf32> -> tensor<8xf32>
  return
}

// -----

func.func @flatten_nowhere(%x: tensor<4xf32>) {
  // expected-error @below {{'train.flatten' op expects a result or 'outs', not both (C3)}}
  train.flatten %x at [0] : tensor<4xf32>
  return
}

// -----

func.func @view_type(%x: tensor<8xf32>) {
  // expected-error @below {{'train.view' op expects a tensor of rank 1 or a buffer, and a result of its element type (C1), got 'tensor<8xf32>' and 'tensor<2xf64>'}}
  %0 = train.view %x from 0 : tensor<8xf32> -> tensor<2xf64>
  return
}

// -----

func.func @view_end(%x: tensor<8xf32>) {
  // expected-error @below {{'train.view' op expects a part within its operand (C2), got 'tensor<2x2xf32>' from 5 of 'tensor<8xf32>'}}
  %0 = train.view %x from 5 : tensor<8xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @view_not_laid_out(%x: tensor<?xf32>) {
  // expected-error @below {{'train.view' op expects a part within its operand (C2), got 'tensor<2x2xf32>' from 0 of 'tensor<?xf32>'}}
  %0 = train.view %x from 0 : tensor<?xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @view_laid_out(%x: tensor<8xf32>) {
  // expected-error @below {{'train.view' op expects a part within its operand (C2), got 'tensor<2x2xf32>' from 0 of 'tensor<8xf32>'}}
  %0 = train.view %x of @w : tensor<8xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @view_dynamic(%x: tensor<4x?xf32>) {
  // expected-error @below {{'train.view' op operand #0 must be tensor, bucket or buffer, but got 'tensor<4x?xf32>'}}
  %0 = train.view %x from 0 : tensor<4x?xf32> -> tensor<2x2xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @constrain_unknown(%x: tensor<4xf32>) {
  // expected-error @below {{'train.constrain' op expects at most one list per dimension of axes of the mesh, each once (C1), got}}
  %0 = train.constrain %x split([model]) : tensor<4xf32>
  return
}

// -----

train.mesh @mesh(data = 2)
func.func @constrain_twice(%x: tensor<4x4xf32>) {
  // expected-error @below {{'train.constrain' op expects at most one list per dimension of axes of the mesh, each once (C1), got}}
  %0 = train.constrain %x split([data], [data]) : tensor<4x4xf32>
  return
}
