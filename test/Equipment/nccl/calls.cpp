//===- calls.cpp - The functions of the NCCL of tests ---------------------===//

#include "fake.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace trainc;
using namespace trainc::cuda;

#define TRAINC_NCCL_FUNCTION(result, name, parameters)                         \
  extern "C" TRAINC_EMU_EXPORT result name parameters;
namespace trainc::cuda {
#include "cuda/nccl.def"
} // namespace trainc::cuda

FakeNccl trainc::cuda::fakeNccl;

/// Calls of ncclCommGetAsyncError until what was begun is there.
static constexpr unsigned usualPolls = 3;

/// Sets the text of the last error and returns `result`.
__attribute__((format(printf, 2, 3))) static ncclResult_t
refuse(ncclResult_t result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(fakeNccl.error, sizeof(fakeNccl.error), format, arguments);
  va_end(arguments);
  return result;
}
#define CHECK(result)                                                          \
  do {                                                                         \
    if (ncclResult_t checked = (result); checked != ncclSuccess)               \
      return checked;                                                          \
  } while (false)
#define NEED(condition, result, ...)                                           \
  do {                                                                         \
    if (!(condition))                                                          \
      return refuse(result, __VA_ARGS__);                                      \
  } while (false)

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

bool trainc::cuda::hasFault(Fault fault, const char *where, uint64_t number,
                            double *value) {
  static const char *const names[] = {
      "TRAINC_FAKE_NCCL_REFUSE", "TRAINC_FAKE_NCCL_STUCK",
      "TRAINC_FAKE_NCCL_FAIL",   "TRAINC_FAKE_NCCL_HANG",
      "TRAINC_FAKE_NCCL_DELAY",  "TRAINC_FAKE_NCCL_DIE"};
  const char *text = getenv(names[static_cast<unsigned>(fault)]);
  if (!text || !*text)
    return false;
  char *end;
  if (strtol(text, &end, 10) != fakeNccl.rank || *end != ':')
    return false;
  Text wanted;
  if (where)
    wanted.append(where);
  else
    wanted.format("%llu", static_cast<unsigned long long>(number));
  if (strncmp(end + 1, wanted.c_str(), wanted.size()) != 0)
    return false;
  end += 1 + wanted.size();
  if (*end != ':' && *end)
    return false;
  if (value)
    *value = *end ? strtod(end + 1, nullptr) : 0;
  return true;
}

/// What a call that is wanted to fail does.
static ncclResult_t checkFault(const char *where, uint64_t number = 0) {
  double value = 0;
  while (hasFault(Fault::Stuck, where, number))
    pause();
  NEED(!hasFault(Fault::Refuse, where, number, &value),
       static_cast<ncclResult_t>(static_cast<unsigned>(value)),
       "refused as asked for");
  return ncclSuccess;
}

//===----------------------------------------------------------------------===//
// Communicators
//===----------------------------------------------------------------------===//

static ncclResult_t checkComm(const ncclComm *comm) {
  bool there = false;
  for (ncclComm_t one : fakeNccl.comms)
    there |= one == comm;
  NEED(there, ncclInvalidArgument, "not a communicator");
  NEED(!comm->aborted, ncclInvalidUsage, "the communicator was aborted");
  return ncclSuccess;
}

/// It can be called: nothing is in progress.
static ncclResult_t checkIdle(const ncclComm *comm) {
  CHECK(checkComm(comm));
  NEED(comm->failure == ncclSuccess, comm->failure,
       "the communicator has failed");
  NEED(comm->progress == ncclComm::Idle, ncclInvalidUsage,
       "the communicator is in progress: ask ncclCommGetAsyncError first");
  NEED(!comm->finalized, ncclInvalidUsage, "the communicator is finalized");
  NEED(comm->context == trainc_fake_cuda_context(), ncclInvalidUsage,
       "the thread's context is not that of the communicator");
  return ncclSuccess;
}

ncclResult_t trainc::cuda::ncclGetVersion(int *version) {
  const char *text = getenv("TRAINC_FAKE_NCCL_VERSION");
  *version = text && *text ? atoi(text) : 22809;
  return ncclSuccess;
}

const char *trainc::cuda::ncclGetErrorString(ncclResult_t result) {
  static const char *const texts[] = {
      "no error",
      "unhandled cuda error",
      "unhandled system error",
      "internal error",
      "invalid argument",
      "invalid usage",
      "remote process exited or there was a network error",
      "NCCL operation in progress"};
  return result <= ncclInProgress ? texts[result] : "unknown result code";
}

const char *trainc::cuda::ncclGetLastError(ncclComm_t) {
  return fakeNccl.error;
}

static Shared *mapShared(int file) {
  void *data = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED,
                    file, 0);
  return data == MAP_FAILED ? nullptr : static_cast<Shared *>(data);
}

/// The file stays open: the others open it by this process's table.
ncclResult_t trainc::cuda::ncclGetUniqueId(ncclUniqueId *id) {
  int file = memfd_create("trainc_fake_nccl", MFD_CLOEXEC);
  NEED(file >= 0 && ftruncate(file, sizeof(Shared)) == 0, ncclSystemError,
       "no shared memory: %s", strerrordesc_np(errno));
  memset(id->internal, 0, sizeof(id->internal));
  snprintf(id->internal, sizeof(id->internal), "/proc/%d/fd/%d", getpid(),
           file);
  return ncclSuccess;
}

static ncclResult_t join(ncclComm &comm, const ncclUniqueId &id) {
  int file = open(id.internal, O_RDWR | O_CLOEXEC);
  NEED(file >= 0, ncclSystemError, "cannot open %s: %s", id.internal,
       strerrordesc_np(errno));
  comm.shared = mapShared(file);
  close(file);
  NEED(comm.shared, ncclSystemError, "cannot map %s", id.internal);
  int expected = 0;
  NEED(comm.shared->ranks.compare_exchange_strong(expected, comm.ranks) ||
           expected == comm.ranks,
       ncclInvalidArgument, "a communicator of %d ranks, another has %d",
       comm.ranks, expected);
  int64_t nobody = 0;
  NEED(comm.place(comm.rank).pid.compare_exchange_strong(nobody, getpid()),
       ncclInvalidArgument, "rank %d of a communicator is there twice",
       comm.rank);
  return ncclSuccess;
}

ncclResult_t trainc::cuda::ncclCommInitRankConfig(ncclComm_t *out_comm,
                                                  int ranks, ncclUniqueId id,
                                                  int rank,
                                                  ncclConfig_t *config) {
  *out_comm = nullptr;
  NEED(ranks > 0 && ranks <= maxRanks && rank >= 0 && rank < ranks,
       ncclInvalidArgument, "rank %d of %d", rank, ranks);
  NEED(config && config->size == sizeof(*config) &&
           config->magic == ncclConfigMagic &&
           config->version == unsigned(ncclOldest),
       ncclInvalidArgument, "a configuration that was not initialized");
  NEED(config->blocking == 0, ncclInvalidUsage, "a communicator that blocks");
  NEED(trainc_fake_cuda_context(), ncclInvalidUsage,
       "the thread has no context");
  if (fakeNccl.rank < 0)
    fakeNccl.rank = rank;
  CHECK(checkFault("init"));
  if (hasFault(Fault::Die, "init", 0))
    kill(getpid(), SIGKILL);
  auto *comm = create<ncclComm>();
  comm->rank = rank;
  comm->ranks = ranks;
  comm->context = trainc_fake_cuda_context();
  comm->progress = ncclComm::Initializing;
  comm->polls = usualPolls;
  double value = 0;
  comm->stuck = hasFault(Fault::Hang, "init", 0);
  if (hasFault(Fault::Fail, "init", 0, &value)) {
    comm->failure = static_cast<ncclResult_t>(static_cast<unsigned>(value));
    refuse(comm->failure, "failed as asked for");
  }
  if (hasFault(Fault::Delay, "init", 0, &value))
    usleep(static_cast<useconds_t>(value * 1e6));
  ncclResult_t joined = join(*comm, id);
  if (joined != ncclSuccess) {
    destroy(comm);
    return joined;
  }
  if (!comm->stuck && comm->failure == ncclSuccess)
    ++comm->shared->joined;
  fakeNccl.comms.push(comm);
  *out_comm = comm;
  return ncclInProgress;
}

static void forget(ncclComm_t comm) {
  for (ncclComm_t &one : fakeNccl.comms)
    if (one == comm) {
      one = fakeNccl.comms[fakeNccl.comms.size() - 1];
      fakeNccl.comms.resize(fakeNccl.comms.size() - 1);
      break;
    }
}

ncclResult_t trainc::cuda::ncclCommFinalize(ncclComm_t comm) {
  CHECK(checkIdle(comm));
  CHECK(checkFault("finalize"));
  comm->progress = ncclComm::Finalizing;
  comm->polls = usualPolls;
  return ncclInProgress;
}

ncclResult_t trainc::cuda::ncclCommDestroy(ncclComm_t comm) {
  CHECK(checkComm(comm));
  NEED(comm->finalized && comm->progress == ncclComm::Idle, ncclInvalidUsage,
       "a communicator is destroyed that was not finalized");
  NEED(comm->registrations.size() == 0, ncclInvalidUsage,
       "a communicator is destroyed with %zu registrations",
       comm->registrations.size());
  forget(comm);
  munmap(comm->shared, sizeof(Shared));
  destroy(comm);
  return ncclSuccess;
}

/// The communicator itself stays: its collectives may be in streams and graphs.
ncclResult_t trainc::cuda::ncclCommAbort(ncclComm_t comm) {
  CHECK(checkComm(comm));
  CHECK(checkFault("abort"));
  comm->aborted = true;
  while (trainc_fake_cuda_recorded(comm))
    usleep(1000);
  for (Registration *one : comm->registrations)
    destroy(one);
  comm->registrations.clear();
  forget(comm);
  ++fakeNccl.counts.aborts;
  return ncclSuccess;
}

//===----------------------------------------------------------------------===//
// Progress
//===----------------------------------------------------------------------===//

static void putIntoStreams(ncclComm &comm) {
  for (const Begun &begun : comm.begun) {
    const Operation &op = begun.operation;
    uint64_t size = sizeOf(op.type), ranks = static_cast<uint64_t>(comm.ranks);
    uint64_t whole = op.count * size * ranks, part = op.count * size;
    const trainc_fake_cuda_range ranges[] = {
        {op.from, op.kind == Kind::ReduceScatter ? whole : part},
        {op.to, op.kind == Kind::AllGather ? whole : part}};
    trainc_fake_cuda_call call = {};
    call.name = nameOf(op.kind);
    call.function = perform;
    call.data = &op;
    call.data_bytes = sizeof(op);
    call.ranges = ranges;
    call.num_ranges = part ? 2 : 0;
    call.lane = 1;
    call.owner = &comm;
    if (trainc_fake_cuda_enqueue(begun.stream, &call) != CUDA_SUCCESS)
      comm.failure =
          refuse(ncclUnhandledCudaError, "%s", trainc_fake_cuda_report());
  }
  comm.begun.clear();
}

static void goOn(ncclComm &comm) {
  if (comm.progress == ncclComm::Idle || comm.stuck)
    return;
  if (comm.polls && --comm.polls)
    return;
  switch (comm.progress) {
  case ncclComm::Idle:
    break;
  case ncclComm::Initializing:
    if (comm.shared->joined.load() < comm.ranks)
      return;
    break;
  case ncclComm::Calling:
    putIntoStreams(comm);
    break;
  case ncclComm::Finalizing:
    if (trainc_fake_cuda_recorded(&comm))
      return;
    comm.finalized = true;
    break;
  }
  comm.progress = ncclComm::Idle;
}

ncclResult_t trainc::cuda::ncclCommGetAsyncError(ncclComm_t comm,
                                                 ncclResult_t *error) {
  CHECK(checkComm(comm));
  ++fakeNccl.counts.polls;
  if (comm->failure == ncclSuccess)
    goOn(*comm);
  *error = comm->failure != ncclSuccess       ? comm->failure
           : comm->progress == ncclComm::Idle ? ncclSuccess
                                              : ncclInProgress;
  return ncclSuccess;
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

static uint64_t addressOf(const void *address) {
  return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address));
}

ncclResult_t trainc::cuda::ncclCommRegister(ncclComm_t comm, void *address,
                                            size_t bytes, void **handle) {
  CHECK(checkIdle(comm));
  CHECK(checkFault("register"));
  NEED(bytes && trainc_fake_cuda_base(addressOf(address), bytes),
       ncclInvalidArgument, "what is registered is not of one allocation");
  auto *one = create<Registration>();
  *one = {addressOf(address), bytes};
  comm->registrations.push(one);
  *handle = one;
  return ncclSuccess;
}

ncclResult_t trainc::cuda::ncclCommDeregister(ncclComm_t comm, void *handle) {
  CHECK(checkIdle(comm));
  Array<Registration *> &all = comm->registrations;
  for (Registration *&one : all)
    if (one == handle) {
      destroy(one);
      one = all[all.size() - 1];
      all.resize(all.size() - 1);
      return ncclSuccess;
    }
  return refuse(ncclInvalidArgument, "not a registration");
}

/// The registration that has all of the bytes: its number from 1 on; 0: none has.
static uint64_t findRegistration(const ncclComm &comm, uint64_t address,
                                 uint64_t bytes, uint64_t *offset) {
  for (size_t i = 0; i < comm.registrations.size(); ++i) {
    const Registration &one = *comm.registrations[i];
    if (address >= one.address && bytes <= one.bytes &&
        address - one.address <= one.bytes - bytes) {
      *offset = address - one.address;
      return i + 1;
    }
  }
  return 0;
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

static bool isApart(uint64_t a, uint64_t aBytes, uint64_t b, uint64_t bBytes) {
  return a + aBytes <= b || b + bBytes <= a;
}

static ncclResult_t checkPlace(const Operation &op) {
  const ncclComm &comm = *op.comm;
  uint64_t part = op.count * sizeOf(op.type);
  uint64_t whole = part * static_cast<uint64_t>(comm.ranks);
  uint64_t mine = part * static_cast<uint64_t>(comm.rank);
  bool inPlace = op.kind == Kind::ReduceScatter ? op.to == op.from + mine
                 : op.kind == Kind::AllGather   ? op.from == op.to + mine
                                                : op.from == op.to;
  uint64_t fromBytes = op.kind == Kind::ReduceScatter ? whole : part;
  uint64_t toBytes = op.kind == Kind::AllGather ? whole : part;
  NEED(inPlace || isApart(op.from, fromBytes, op.to, toBytes),
       ncclInvalidArgument, "%s: source and target overlap, but not in place",
       nameOf(op.kind));
  NEED(part == 0 || (trainc_fake_cuda_base(op.from, fromBytes) &&
                     trainc_fake_cuda_base(op.to, toBytes)),
       ncclInvalidArgument, "%s: the range is not of one allocation",
       nameOf(op.kind));
  return ncclSuccess;
}

/// Whether source and target are registered, and where: what must be the same on all
/// ranks.
static void findRegistrations(Operation &op) {
  const ncclComm &comm = *op.comm;
  uint64_t part = op.count * sizeOf(op.type), fromOffset = 0, toOffset = 0;
  uint64_t whole = part * static_cast<uint64_t>(comm.ranks);
  bool gathers = op.kind == Kind::AllGather;
  uint64_t from = findRegistration(
               comm, op.from, op.kind == Kind::ReduceScatter ? whole : part,
               &fromOffset),
           to =
               findRegistration(comm, op.to, gathers ? whole : part, &toOffset);
  op.registered = from && to ? from * 1000 + to : 0;
  if (op.registered)
    op.offset = gathers ? toOffset : fromOffset;
}

static ncclResult_t call(Operation op, CUstream stream) {
  CHECK(checkIdle(op.comm));
  NEED(sizeOf(op.type), ncclInvalidArgument, "%s: an unknown type",
       nameOf(op.kind));
  NEED(op.root >= 0 && op.root < op.comm->ranks, ncclInvalidArgument,
       "%s: root %d", nameOf(op.kind), op.root);
  CHECK(checkPlace(op));
  CHECK(checkFault(nullptr, fakeNccl.counts.calls++));
  findRegistrations(op);
  op.comm->begun.push({op, stream});
  if (fakeNccl.depth)
    return ncclSuccess;
  op.comm->progress = ncclComm::Calling;
  op.comm->polls = usualPolls;
  return ncclInProgress;
}

static Operation operation(Kind kind, const void *from, void *to, size_t count,
                           ncclDataType_t type, ncclComm_t comm) {
  Operation op = {};
  op.comm = comm;
  op.kind = kind;
  op.type = type;
  op.from = addressOf(from);
  op.to = addressOf(to);
  op.count = count;
  return op;
}

ncclResult_t trainc::cuda::ncclAllReduce(const void *from, void *to,
                                         size_t count, ncclDataType_t type,
                                         ncclRedOp_t op, ncclComm_t comm,
                                         CUstream stream) {
  NEED(op == ncclSum, ncclInvalidArgument, "ncclAllReduce: not a sum");
  return call(operation(Kind::AllReduce, from, to, count, type, comm), stream);
}

ncclResult_t trainc::cuda::ncclReduceScatter(const void *from, void *to,
                                             size_t countOfPiece,
                                             ncclDataType_t type,
                                             ncclRedOp_t op, ncclComm_t comm,
                                             CUstream stream) {
  NEED(op == ncclSum, ncclInvalidArgument, "ncclReduceScatter: not a sum");
  return call(
      operation(Kind::ReduceScatter, from, to, countOfPiece, type, comm),
      stream);
}

ncclResult_t trainc::cuda::ncclAllGather(const void *from, void *to,
                                         size_t countOfPiece,
                                         ncclDataType_t type, ncclComm_t comm,
                                         CUstream stream) {
  return call(operation(Kind::AllGather, from, to, countOfPiece, type, comm),
              stream);
}

ncclResult_t trainc::cuda::ncclBroadcast(const void *from, void *to,
                                         size_t count, ncclDataType_t type,
                                         int root, ncclComm_t comm,
                                         CUstream stream) {
  Operation one = operation(Kind::Broadcast, from, to, count, type, comm);
  one.root = root;
  return call(one, stream);
}

ncclResult_t trainc::cuda::ncclGroupStart() {
  ++fakeNccl.depth;
  return ncclSuccess;
}

ncclResult_t trainc::cuda::ncclGroupEnd() {
  NEED(fakeNccl.depth, ncclInvalidUsage, "the end of no group");
  bool any = false;
  if (--fakeNccl.depth)
    return ncclSuccess;
  for (ncclComm_t comm : fakeNccl.comms)
    if (comm->begun.size() && comm->progress == ncclComm::Idle) {
      comm->progress = ncclComm::Calling;
      comm->polls = usualPolls;
      any = true;
    }
  return any ? ncclInProgress : ncclSuccess;
}

void trainc_fake_nccl_get_counts(trainc_fake_nccl_counts *out_counts) {
  fakeNccl.counts.communicators = fakeNccl.comms.size();
  fakeNccl.counts.registrations = 0;
  for (const ncclComm *comm : fakeNccl.comms)
    fakeNccl.counts.registrations += comm->registrations.size();
  *out_counts = fakeNccl.counts;
}
