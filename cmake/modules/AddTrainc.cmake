# Wrappers that every target of the compiler goes through: include paths, flags
# and the one choice of libMLIR.so are made here only.

# trainc_warnings(target): the warnings that all our C++ is built with.
function(trainc_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter)
  if(TRAINC_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TRAINC_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TRAINC_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${TRAINC_SANITIZE})
  endif()
endfunction()

function(_trainc_compiler_target target)
  target_include_directories(${target} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
  target_compile_options(${target} PRIVATE -fno-exceptions)
  trainc_warnings(${target})
endfunction()

# add_trainc_library(name SOURCES... [DEPENDS targets] [LINK_LIBS targets]
#                    [PRECOMPILE headers | PRECOMPILED_BY library])
# PRECOMPILE: headers to parse once and not in each source, where parsing takes nearly all
# of the time. PRECOMPILED_BY: takes those of another library. A source still includes what
# it uses: CMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds, too (scripts/lint.sh --includes).
function(add_trainc_library name)
  cmake_parse_arguments(ARG "" "PRECOMPILED_BY" "DEPENDS;LINK_LIBS;PRECOMPILE" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  _trainc_compiler_target(${name})
  # Without its time in it, ccache finds a precompiled header again.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)
  if(ARG_PRECOMPILE)
    target_precompile_headers(${name} PRIVATE ${ARG_PRECOMPILE})
  elseif(ARG_PRECOMPILED_BY)
    target_precompile_headers(${name} REUSE_FROM ${ARG_PRECOMPILED_BY})
  endif()
  target_link_libraries(${name} PUBLIC ${ARG_LINK_LIBS} MLIR LLVM)
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# add_trainc_tool(name SOURCES... LINK_LIBS targets): an executable in bin/.
function(add_trainc_tool name)
  cmake_parse_arguments(ARG "" "" "LINK_LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  _trainc_compiler_target(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK_LIBS} MLIR LLVM)
  # LLVM's libraries are not in the linker's default folders; a Python package has its own.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;${LLVM_LIBRARY_DIR}")
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()
