// The headers compile alone, as C11 and as C++17, without a warning; the libraries
// need nothing but the C library.
//
// RUN: echo '#include <trainc/step_abi.h>' > %t.h
// RUN: echo '#include <trainc/runtime.h>' > %t2.h
// RUN: echo '#include <trainc/runtime.hpp>' > %t3.h
// RUN: %cc -std=c11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c -I%runtime_include %t.h
// RUN: %cc -std=c11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c -I%runtime_include %t2.h
// RUN: %cxx -std=c++17 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c++ -I%runtime_include %t.h
// RUN: %cxx -std=c++17 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c++ -I%runtime_include %t2.h
// RUN: %cxx -std=c++17 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c++ -I%runtime_include %t3.h
// RUN: ldd %runtime_lib/libtrainc_runtime.so | FileCheck %s --implicit-check-not=libstdc++ --implicit-check-not=LLVM
// CHECK: libc.so
// RUN: nm -D --defined-only %runtime_lib/libtrainc_runtime.so | FileCheck %s --check-prefix=SYMBOLS --implicit-check-not='{{ [A-Z] [^t]}}'
// SYMBOLS: T trainc_artifact_open
