//===- target.cpp - What a trainer runs on --------------------------------===//

#include "core/target.h"

using namespace trainc;

static const char *targetName(uint32_t target) {
  switch (target) {
#define TRAINC_TARGET(NAME, number, text)                                      \
  case number:                                                                 \
    return text;
#include "trainc/step_abi.def"
  }
  return "?";
}

const trainc_descriptor *trainc::findTarget(const trainc_artifact &artifact,
                                            uint32_t target) {
  for (const trainc_descriptor *d = artifact.descriptor; d; d = d->next)
    if (d->target == target)
      return d;
  return nullptr;
}

/// The number in "cuda:NUMBER".
static bool parseOrdinal(const char *text, int &ordinal) {
  char *end;
  long number = strtol(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || number > 65535)
    return false;
  ordinal = static_cast<int>(number);
  return true;
}

static trainc_status failTarget(const trainc_artifact &artifact,
                                uint32_t target) {
  return fail(TRAINC_UNSUPPORTED,
              "artifact '%s' has no code for device '%s', but for '%s': choose "
              "that, or compile it with --target=%s",
              artifact.descriptor->name, targetName(target),
              targetName(artifact.descriptor->target), targetName(target));
}

trainc_status trainc::failDevice(const trainc_artifact &artifact,
                                 trainc_status status) {
  Text reason;
  reason.append(trainc_last_error());
  bool other = findTarget(artifact, TRAINC_TARGET_CPU) != nullptr;
  return fail(status, "'%s' cannot run on a GPU: %s; the artifact holds %s",
              artifact.descriptor->name, reason.c_str(),
              other ? "code for the processor, too (device 'cpu')"
                    : "no code for another device");
}

/// Device `ordinal`, or, if that is negative, one for each rank of a host.
static trainc_status openGpu(trainc_trainer *trainer,
                             const trainc_trainer_options &options,
                             const trainc_descriptor &d, int ordinal) {
  trainc_comm_info info = {};
  if (options.comm)
    TRAINC_TRY(trainc_comm_get_info(options.comm, &info));
  double timeout = options.timeout     ? options.timeout
                   : info.deadline > 0 ? info.deadline
                                       : 600;
  if (ordinal < 0) {
    const cuda::Driver *driver;
    TRAINC_TRY(cuda::openDriver(&driver));
    ordinal = static_cast<int>(info.host_rank) % driver->devices;
  }
  TRAINC_TRY(cuda::openExecutor(ordinal, d, timeout, &trainer->gpu));
  trainer->d = &d;
  const cuda::Device &device = cuda::deviceOf(*trainer->gpu);
  trainer->place.format("cuda:%d (%s, sm_%d%d)", device.ordinal, device.name,
                        device.major, device.minor);
  return TRAINC_OK;
}

static trainc_status takeProcessor(trainc_trainer *trainer,
                                   const trainc_descriptor &d) {
  TRAINC_TRY(checkProcessor(*trainer->artifact, d));
  trainer->d = &d;
  trainer->place.append("cpu");
  return TRAINC_OK;
}

static trainc_status chooseAlone(trainc_trainer *trainer,
                                 const trainc_trainer_options &options) {
  const trainc_artifact &artifact = *trainer->artifact;
  const trainc_descriptor *cpu = findTarget(artifact, TRAINC_TARGET_CPU);
  const trainc_descriptor *gpu = findTarget(artifact, TRAINC_TARGET_CUDA);
  const char *device = options.device ? options.device : "";
  int ordinal = -1;
  if (!strcmp(device, "cpu"))
    return cpu ? takeProcessor(trainer, *cpu)
               : failTarget(artifact, TRAINC_TARGET_CPU);
  bool wanted = !strcmp(device, "cuda") || (!strncmp(device, "cuda:", 5) &&
                                            parseOrdinal(device + 5, ordinal));
  if (*device && !wanted)
    return fail(TRAINC_INVALID_ARGUMENT,
                "there is no device '%s': expected 'cpu', 'cuda' or "
                "'cuda:NUMBER'",
                device);
  if (!gpu)
    return wanted ? failTarget(artifact, TRAINC_TARGET_CUDA)
                  : takeProcessor(trainer, *cpu);
  trainc_status status = openGpu(trainer, options, *gpu, ordinal);
  if (status == TRAINC_OK)
    return TRAINC_OK;
  if (wanted || !cpu)
    return failDevice(artifact, status);
  const char *reason = trainc_last_error();
  trainer->notice.format(
      "%.*s; '%s' runs on the CPU; with device 'cuda' this is an error",
      static_cast<int>(strcspn(reason, "\n")), reason,
      artifact.descriptor->name);
  return takeProcessor(trainer, *cpu);
}

namespace {
/// What a rank has chosen.
struct Choice {
  uint32_t target, automatic;
};
} // namespace

/// All ranks run on GPUs, or none does.
static trainc_status agreeOnTarget(trainc_trainer *trainer,
                                   const Array<Choice> &choices,
                                   const Choice &mine) {
  const trainc_descriptor &d = *trainer->artifact->descriptor;
  uint32_t other = UINT32_MAX;
  bool automatic = true;
  for (uint32_t rank = 0; rank < choices.size(); ++rank) {
    automatic = automatic && choices[rank].automatic;
    if (choices[rank].target != mine.target && other == UINT32_MAX)
      other = rank;
  }
  if (other == UINT32_MAX)
    return TRAINC_OK;
  if (!automatic)
    return fail(TRAINC_MISMATCH,
                "'%s' runs on '%s' here and on '%s' of rank %u: all ranks need "
                "one kind of device",
                d.name, targetName(mine.target),
                targetName(choices[other].target), other);
  if (!trainer->gpu)
    return TRAINC_OK;
  cuda::closeExecutor(trainer->gpu);
  trainer->gpu = nullptr;
  trainer->place.clear();
  trainer->notice.format("rank %u has no GPU for it; '%s' runs on the CPU; "
                         "with device 'cuda' this is an error",
                         other, d.name);
  return takeProcessor(trainer,
                       *findTarget(*trainer->artifact, TRAINC_TARGET_CPU));
}

trainc_status trainc::chooseTarget(trainc_trainer *trainer,
                                   const trainc_trainer_options &options) {
  trainc_status status = chooseAlone(trainer, options);
  trainc_comm_info info = {};
  if (options.comm)
    TRAINC_TRY(trainc_comm_get_info(options.comm, &info));
  if (info.ranks <= 1 || !findTarget(*trainer->artifact, TRAINC_TARGET_CUDA))
    return status;
  TRAINC_TRY(agreeOutcome(*options.comm, status));
  Choice mine = {trainer->d->target, !options.device || !*options.device};
  Array<Choice> choices;
  choices.resize(info.ranks);
  TRAINC_TRY(trainc_comm_all_gather(options.comm, &mine, sizeof(mine),
                                    choices.data()));
  return agreeOnTarget(trainer, choices, mine);
}
