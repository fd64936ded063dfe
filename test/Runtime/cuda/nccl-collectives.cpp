// Collectives between GPUs by the NCCL of tests: every kind, every type, 1 to 3 ranks,
// in place and with a target, several as one, in pieces, in the groups of a mesh of
// 2 x 2; memory that is registered; a rank alone. Nothing is left behind.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -fsyntax-only -x c -I%trainc_src/test/Equipment/include -I%trainc_src/include %trainc_src/test/Equipment/include/trainc/fake_nccl.h
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_nccl -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir && env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBNCCL=%runtime_lib/libtrainc_fake_nccl.so %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir && env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBNCCL=%runtime_lib/libtrainc_fake_nccl.so TRAINC_FAKE_NCCL_REFUSE=1:register:3 %t unregistered

#include "Inputs/collectives.h"

static std::vector<uint32_t> firstRanks(uint32_t ranks) {
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < ranks; ++i)
    all.push_back(i);
  return all;
}

static void checkNothingLeft() {
  trainc_fake_nccl_counts nccl = ncclCounts();
  trainc_fake_cuda_counts cuda = cudaCounts();
  CHECK(!nccl.communicators && !nccl.registrations && !nccl.aborts);
  CHECK(!cuda.contexts && !cuda.allocations && !cuda.pinned && !cuda.streams &&
        !cuda.events && !cuda.pending);
}

static void testAll(uint32_t ranks) {
  runRanks(ranks, [&](uint32_t rank, trainc_comm &comm) {
    {
      Gpu gpu(&comm);
      std::vector<uint32_t> all = firstRanks(ranks);
      uint64_t done = 0;
      for (int kind = 0; kind < TRAINC_BARRIER; ++kind)
        for (uint32_t dtype : types)
          for (bool apart : {false, true}) {
            testOne(gpu, static_cast<trainc_collective_kind>(kind), dtype,
                    nullptr, all, rank, 37, apart);
            ++done;
          }
      // What is only moved may be of any type.
      testOne(gpu, TRAINC_ALL_GATHER, TRAINC_I16, nullptr, all, rank, 5, false);
      testOne(gpu, TRAINC_BROADCAST, TRAINC_BOOL, nullptr, all, rank, 5, true);
      DeviceCollective wrong;
      wrong.dtype = TRAINC_I16;
      wrong.count = ranks;
      wrong.label = "counts";
      CHECK(enqueue(*gpu.communicator, &wrong, 1, gpu.streams.compute) ==
            TRAINC_UNSUPPORTED);
      CHECK(strstr(trainc_last_error(), "'counts': NCCL adds no I16"));
      CHECK(enqueued(*gpu.communicator) == done + 2);
      // More than the library of tests moves at a time.
      for (int kind = 0; kind < TRAINC_BARRIER; ++kind)
        testOne(gpu, static_cast<trainc_collective_kind>(kind), TRAINC_F32,
                nullptr, all, rank, 300001, false);
      trainc_comm_info info;
      OK(trainc_comm_get_info(&comm, &info));
      CHECK(info.collectives[TRAINC_ALL_REDUCE] == 17);
      CHECK(ncclCounts().done[TRAINC_ALL_REDUCE] == 17);
      CHECK(ncclCounts().polls > ncclCounts().calls);
    }
    checkNothingLeft();
  });
}

/// Several collectives in one call of NCCL.
static void testTogether() {
  runRanks(2, [](uint32_t rank, trainc_comm &comm) {
    Gpu gpu(&comm);
    Buffer a(gpu, 64), b(gpu, 64);
    fill(TRAINC_F32, a, rank, 16);
    fill(TRAINC_F64, b, rank, 8);
    DeviceCollective c[2];
    c[0].count = 16;
    c[0].data = a.address;
    c[0].label = "a";
    c[1].kind = TRAINC_REDUCE_SCATTER;
    c[1].dtype = TRAINC_F64;
    c[1].count = 8;
    c[1].data = b.address;
    c[1].label = "b";
    OK(startCollectives(gpu.streams, *gpu.communicator, c, 2));
    OK(awaitCollectives(gpu.streams));
    OK(gpu.wait());
    for (uint64_t i = 0; i < 16; ++i)
      storeSum(TRAINC_F32, a.bytes.data(), i, {0, 1}, i);
    for (uint64_t i = 4 * rank; i < 4 * rank + 4; ++i)
      storeSum(TRAINC_F64, b.bytes.data(), i, {0, 1}, i);
    CHECK(a.isSame() && b.isSame());
    CHECK(enqueued(*gpu.communicator) == 2);
  });
}

/// Rows and columns of a mesh of 2 x 2, and all ranks, by turns.
static void testMesh() {
  runRanks(4, [](uint32_t rank, trainc_comm &comm) {
    {
      Gpu gpu(&comm);
      std::vector<uint32_t> row = {rank / 2 * 2, rank / 2 * 2 + 1};
      std::vector<uint32_t> column = {rank % 2, rank % 2 + 2};
      const Group *rows, *columns;
      OK(createGroup(comm, row.data(), 2, &rows));
      OK(createGroup(comm, column.data(), 2, &columns));
      DeviceCollective early;
      early.group = rows;
      early.label = "early";
      CHECK(enqueue(*gpu.communicator, &early, 1, gpu.streams.compute) ==
            TRAINC_INVALID_ARGUMENT);
      CHECK(strstr(trainc_last_error(),
                   "'early': of a group that was not joined"));
      OK(joinGroup(*gpu.communicator, rows));
      OK(joinGroup(*gpu.communicator, columns));
      OK(joinGroup(*gpu.communicator, rows));
      CHECK(ncclCounts().communicators == 3);
      for (int kind = 0; kind < TRAINC_BARRIER; ++kind) {
        auto k = static_cast<trainc_collective_kind>(kind);
        testOne(gpu, k, TRAINC_F32, rows, row, rank, 11, false);
        testOne(gpu, k, TRAINC_BF16, columns, column, rank, 12, true);
        testOne(gpu, k, TRAINC_F32, nullptr, firstRanks(4), rank, 3, false);
      }
    }
    checkNothingLeft();
  });
}

/// Memory that NCCL was told of, or, in the run in which rank 1 cannot, was not.
static void testRegistration(bool works) {
  runRanks(2, [&](uint32_t rank, trainc_comm &comm) {
    {
      Gpu gpu(&comm);
      Buffer arena(gpu, 4096), other(gpu, 64);
      fill(TRAINC_F32, arena, rank, 1024);
      fill(TRAINC_F32, other, rank, 16);
      trainc_status status =
          registerMemory(*gpu.communicator, arena.address, 4096);
      CHECK(status == (works ? TRAINC_OK : TRAINC_UNSUPPORTED));
      if (!works)
        CHECK(strstr(trainc_last_error(),
                     rank == 0 ? "rank 1: NCCL registers no memory: internal "
                                 "error (refused as asked for)"
                               : "NCCL registers no memory"));
      CHECK(ncclCounts().registrations == (works ? 1 : 0));
      for (CUdeviceptr address : {arena.address + 256, other.address}) {
        DeviceCollective c;
        c.count = 16;
        c.data = address;
        OK(runCollectives(gpu.streams, *gpu.communicator, &c, 1));
      }
      OK(gpu.wait());
      for (uint64_t i = 0; i < 16; ++i) {
        storeSum(TRAINC_F32, arena.bytes.data(), 64 + i, {0, 1}, 64 + i);
        storeSum(TRAINC_F32, other.bytes.data(), i, {0, 1}, i);
      }
      CHECK(arena.isSame() && other.isSame());
      CHECK(ncclCounts().registered == (works ? 1 : 0));
      if (works) { // one is forgotten, one is left to the end
        OK(registerMemory(*gpu.communicator, other.address, 64));
        OK(forgetMemory(*gpu.communicator, arena.address));
        CHECK(ncclCounts().registrations == 1);
      }
    }
    checkNothingLeft();
  });
}

/// One rank needs no communicator of hosts.
static void testAlone() {
  CHECK(finishProcess(startProcess([] {
                        {
                          Gpu gpu(nullptr);
                          for (int kind = 0; kind < TRAINC_BARRIER; ++kind)
                            for (bool apart : {false, true})
                              testOne(gpu,
                                      static_cast<trainc_collective_kind>(kind),
                                      TRAINC_F32, nullptr, {0}, 0, 100, apart);
                        }
                        checkNothingLeft();
                      }),
                      60) == 0);
}

int main(int argc, char **) {
  if (argc > 1) {
    testRegistration(false);
    return 0;
  }
  testAlone();
  for (uint32_t ranks : {1, 2, 3})
    testAll(ranks);
  testTogether();
  testMesh();
  testRegistration(true);
}
