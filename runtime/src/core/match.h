//===- match.h - Which tensor of a state comes from where -------*- C++ -*-===//
//
// A state is taken over from a checkpoint or, in a conversion, from another
// state, which is described as the checkpoint that it would be saved as.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_MATCH_H
#define TRAINC_CORE_MATCH_H

#include "core/safetensors.h"
#include "core/trainer.h"

namespace trainc {

/// One tensor of a checkpoint, by the order in which they are written.
struct Piece {
  uint32_t tensor; // or UINT32_MAX: a scalar
  uint32_t scalar;
  /// Whose term of a sum it is, among the ranks that have terms of the same elements;
  /// or UINT32_MAX: it is that of all.
  uint32_t rank;
};

void pieceName(const trainc_descriptor &descriptor, uint32_t ranks,
               const Piece &piece, Text &name);

/// Appends the name of what `rank` of `ranks` saved as `name`.
void rankName(Text &to, uint32_t rank, uint32_t ranks, const char *name);

/// The pieces of a trainer's state and their header; `gradients`: with them, which are
/// those of each of `ranks` ranks or, of 1, this rank's.
void describeState(const trainc_trainer *trainer, bool gradients,
                   uint32_t ranks, Array<Piece> &pieces, HeaderWriter &header);

/// Is a gradient of the table a sum over all ranks, also in an open window?
inline bool isMerged(const trainc_descriptor &d, uint32_t gradient) {
  return d.arenas[d.tensors[gradient].arena].role == TRAINC_ROLE_MERGED;
}

/// Does a rank have all terms of a gradient, if it has any?
bool isSum(const trainc_descriptor &d, const Ranks &ranks, uint32_t gradient);

inline bool inWindow(const trainc_trainer *trainer) {
  return inWindow(*trainer->d, trainer->scalars);
}

/// The key under which a checkpoint names the entry of an open window.
void windowKey(const trainc_descriptor &descriptor, uint32_t window, Text &key);

/// Where a state comes from.
struct Source {
  const FileHeader &header;
  const char *name; // in messages
  /// The value of a scalar, which is a tensor of the header.
  trainc_status (*readScalar)(const void *context, const FileTensor &scalar,
                              double *out_value);
  const void *context;
};

/// What a state goes into.
struct Target {
  const trainc_artifact *artifact;
  const Ranks *ranks; // null: one
  const Array<trainc_tensor> &tensors;
  bool gradients; // even outside of a window
  bool integers;  // may become other types
  bool averages;  // begin at parameters that are loaded
};

struct Match {
  const FileTensor *from; // null: zeros
  uint32_t to;            // index of a tensor
  bool adds;              // to what an earlier match has brought
};

/// What a match found out.
struct Plan {
  /// Those of one target follow each other.
  Array<Match> tensors;
  /// Of all scalars: the values from before, to begin with, which those that are
  /// neither saved nor the artifact's keep.
  Array<double> scalars;
  Array<bool> isSet; // by scalar
  /// What makes the artifact's of the source's sums of gradients, a power of two.
  double gradientFactor = 1;
  /// Where scalars are not what they were, or not the artifact's, one line each.
  Text notice;
  Array<uint32_t> windowEntries; // by window
};

/// Multiplies what this rank has of gradients by a power of two.
trainc_status scaleGradients(trainc_trainer *trainer, double factor);

/// TRAINC_MISMATCH lists every difference.
trainc_status matchState(const Source &source, const Target &target,
                         Plan &plan);
trainc_status matchParameters(const Source &source, const Target &target,
                              Plan &plan);

} // namespace trainc

#endif // TRAINC_CORE_MATCH_H
