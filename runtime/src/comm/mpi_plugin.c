//===- mpi_plugin.c - libtrainc_mpi.so: the calls of MPI ------------------===//

#include "comm/mpi_plugin.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trainc_mpi_context {
  MPI_Comm comm;
};

_Static_assert(sizeof(MPI_Request) <= sizeof(trainc_mpi_request),
               "a request does not fit");

static MPI_Request load(const trainc_mpi_request *request) {
  MPI_Request result;
  memcpy(&result, request, sizeof result);
  return result;
}
static void store(trainc_mpi_request *request, MPI_Request value) {
  memcpy(request, &value, sizeof value);
}

/// Communicators that are open, and whether one has failed.
static int openContexts, failed;

static void finalize(void) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && !failed && openContexts == 0)
    MPI_Finalize();
}

static const char *library(void) {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS)
    return "MPI";
  text[strcspn(text, ",\n")] = 0; // the rest is how it was built
  return text;
}

static int begin(trainc_mpi_context *context, int *out_rank, int *out_ranks,
                 trainc_mpi_request *out_request) {
  int initialized, provided, error;
  if ((error = MPI_Initialized(&initialized)))
    return error;
  if (!initialized) {
    if ((error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided)))
      return error;
    atexit(finalize);
  }
  MPI_Request request;
  if ((error = MPI_Comm_rank(MPI_COMM_WORLD, out_rank)) ||
      (error = MPI_Comm_size(MPI_COMM_WORLD, out_ranks)) ||
      (error = MPI_Comm_idup(MPI_COMM_WORLD, &context->comm, &request)))
    return error;
  store(out_request, request);
  return MPI_SUCCESS;
}

static int open_context(trainc_mpi_context **out_context, int *out_rank,
                        int *out_ranks, trainc_mpi_request *out_request) {
  trainc_mpi_context *context = malloc(sizeof *context);
  if (!context)
    return MPI_ERR_NO_MEM;
  int error = begin(context, out_rank, out_ranks, out_request);
  if (error) {
    free(context);
    return error;
  }
  ++openContexts;
  *out_context = context;
  return MPI_SUCCESS;
}

static void close_context(trainc_mpi_context *context, int clean) {
  --openContexts;
  if (!clean) { // MPI may still write to it
    failed = 1;
    return;
  }
  MPI_Comm_free(&context->comm);
  free(context);
}

static int gather(trainc_mpi_context *context, const void *mine, void *all,
                  uint64_t bytes, trainc_mpi_request *out_request) {
  // The duplicate is there: from here on errors are ours to report.
  MPI_Comm_set_errhandler(context->comm, MPI_ERRORS_RETURN);
  MPI_Request request;
  int error = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes,
                             MPI_BYTE, context->comm, &request);
  store(out_request, request);
  return error;
}

static int send(trainc_mpi_context *context, const void *data, uint64_t bytes,
                int to, int tag, trainc_mpi_request *out_request) {
  MPI_Request request;
  int error =
      MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, context->comm, &request);
  store(out_request, request);
  return error;
}

static int receive(trainc_mpi_context *context, void *data, uint64_t bytes,
                   int from, int tag, trainc_mpi_request *out_request) {
  MPI_Request request;
  int error = MPI_Irecv(data, (int)bytes, MPI_BYTE,
                        from == TRAINC_MPI_ANY ? MPI_ANY_SOURCE : from, tag,
                        context->comm, &request);
  store(out_request, request);
  return error;
}

static int test(trainc_mpi_request *request, int *out_done) {
  MPI_Request value = load(request);
  int error = MPI_Test(&value, out_done, MPI_STATUS_IGNORE);
  store(request, value);
  return error;
}

static int cancel(trainc_mpi_request *request) {
  MPI_Request value = load(request);
  int error = MPI_Cancel(&value);
  if (!error)
    error = MPI_Request_free(&value);
  store(request, value);
  return error;
}

static void error_text(int error, char *text, uint64_t size) {
  char buffer[MPI_MAX_ERROR_STRING];
  int length;
  if (MPI_Error_string(error, buffer, &length) != MPI_SUCCESS)
    snprintf(buffer, sizeof buffer, "error %d", error);
  snprintf(text, size, "%s", buffer);
}

static void abort_job(trainc_mpi_context *context, int status) {
  MPI_Abort(context->comm, status);
  abort();
}

__attribute__((visibility("default"))) const trainc_mpi *
trainc_mpi_plugin(void);

const trainc_mpi *trainc_mpi_plugin(void) {
  static const trainc_mpi table = {
      .interface = TRAINC_MPI_INTERFACE,
      .library = library,
      .open = open_context,
      .close = close_context,
      .gather = gather,
      .send = send,
      .receive = receive,
      .test = test,
      .cancel = cancel,
      .error_text = error_text,
      .abort = abort_job,
  };
  return &table;
}
