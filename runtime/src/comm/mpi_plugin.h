//===- mpi_plugin.h - What libtrainc_mpi.so offers --------------*- C -*-===//
//
// MPI libraries differ in everything but the source: handles, symbols, names of
// files. So all calls of MPI are in a library of its own, built against one MPI,
// which the runtime opens when a communicator asks for MPI. This is all that the
// two know of each other. C11.
//
// Functions return 0 or an error code of MPI. None waits for a peer.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_COMM_MPI_PLUGIN_H
#define TRAINC_COMM_MPI_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TRAINC_MPI_INTERFACE = 1, TRAINC_MPI_ANY = -1 };

/// An operation that has begun: room for an MPI_Request.
typedef struct trainc_mpi_request {
  uint64_t words[2];
} trainc_mpi_request;

/// A communicator of MPI.
typedef struct trainc_mpi_context trainc_mpi_context;

typedef struct trainc_mpi {
  uint32_t interface; // TRAINC_MPI_INTERFACE
  uint32_t reserved;
  /// "Open MPI v4.1.4", of the library that is loaded.
  const char *(*library)(void);
  /// Initializes MPI if it is not, and begins to duplicate MPI_COMM_WORLD; the
  /// context may be used for communication when `out_request` is done.
  int (*open)(trainc_mpi_context **out_context, int *out_rank, int *out_ranks,
              trainc_mpi_request *out_request);
  /// `clean` is 0 after a failure: nothing is freed that needs the peers, and
  /// MPI is not finalized at the exit.
  void (*close)(trainc_mpi_context *context, int clean);
  int (*gather)(trainc_mpi_context *context, const void *mine, void *all,
                uint64_t bytes, trainc_mpi_request *out_request);
  int (*send)(trainc_mpi_context *context, const void *data, uint64_t bytes,
              int to, int tag, trainc_mpi_request *out_request);
  /// `from` may be TRAINC_MPI_ANY.
  int (*receive)(trainc_mpi_context *context, void *data, uint64_t bytes,
                 int from, int tag, trainc_mpi_request *out_request);
  int (*test)(trainc_mpi_request *request, int *out_done);
  /// Ends a receive to which no message has come.
  int (*cancel)(trainc_mpi_request *request);
  void (*error_text)(int error, char *text, uint64_t size);
  /// Ends the job; does not return.
  void (*abort)(trainc_mpi_context *context, int status);
} trainc_mpi;

/// The library's only symbol.
typedef const trainc_mpi *(*trainc_mpi_plugin_fn)(void);
#define TRAINC_MPI_PLUGIN_SYMBOL "trainc_mpi_plugin"

#ifdef __cplusplus
}
#endif

#endif // TRAINC_COMM_MPI_PLUGIN_H
