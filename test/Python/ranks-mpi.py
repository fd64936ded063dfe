# REQUIRES: mpi, numpy
# RUN: rm -rf %t && mkdir %t && %python %s %t
# RUN: %mpirun -np 2 %python %S/ranks.py %t/ranks.so %t/linear1.so | sort | FileCheck %s
# RUN: %mpirun -np 1 env TRAINC_HOST=one %python %S/ranks.py %t/ranks.so %t/linear1.so : \
# RUN:   -np 1 env TRAINC_HOST=two %python %S/ranks.py %t/ranks.so %t/linear1.so | sort | FileCheck %s
# CHECK: rank 0 of 2 by mpi
# CHECK-NEXT: rank 1 of 2 by mpi
"""ranks.py under mpirun, on one host and as on two."""
import sys

from ranks import compiled

compiled(sys.argv[1])
