//===- workgroups.cpp - The workgroups of a command, one by one -----------===//

#include "core/workgroups.h"
#include "core/trainer.h"

using namespace trainc;

Workgroups::Workgroups(const trainc_trainer *trainer, const trainc_event &event)
    : trainer(trainer),
      command(trainer->entries[event.entry].lists[event.list][event.index]) {}

int64_t Workgroups::count() const { return command.tiles; }

uint64_t Workgroups::scratchBytes() const {
  if (command.plan)
    return gemmScratch(command.plan);
  if (command.convolution)
    return convolutionScratch(command.convolution);
  return command.source->kind == TRAINC_COMMAND_LAUNCH
             ? trainer->d->kernels[command.source->kernel].scratch_bytes
             : 0;
}

uint64_t Workgroups::partialBytes() const {
  return command.plan ? gemmPartialBytes(command.plan) : 0;
}

int64_t Workgroups::numPieces() const {
  return command.plan ? gemmPartialPieces(command.plan) : 0;
}

bool Workgroups::run(void *const *args, int64_t number, void *scratch,
                     void *partial) const {
  return runWorkgroup(command, args, number, scratch, partial);
}

void Workgroups::addPiece(void *const *args, int64_t number,
                          const void *partial) const {
  addGemmPartial(command.plan, args, partial, number);
}
