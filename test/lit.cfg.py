"""How the tests are found and run; the values of this build come from lit.site.cfg.py."""

import ctypes
import glob
import os
import shutil
import subprocess

import lit.formats
from lit.llvm import llvm_config
from lit.llvm.subst import ToolSubst

config.name = "trainc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test", ".c", ".py"]
config.excludes = ["Equipment", "Inputs", "CMakeLists.txt", "lit.cfg.py", "lit.site.cfg.py"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.trainc_binary_dir, "test")

if lit_config.maxIndividualTestTimeIsSupported[0]:
    lit_config.maxIndividualTestTime = 1200

llvm_config.with_environment("PATH", config.llvm_tools_dir, append_path=True)
llvm_config.with_environment("PATH", config.trainc_tools_dir, append_path=True)
# The shared LLVM libraries are not instrumented, so containers that cross them look corrupt to the sanitizer, and what their allocators
# give away stays poisoned where our code made the slab.
config.environment["ASAN_OPTIONS"] = "detect_container_overflow=0:allow_user_poisoning=0"
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    config.environment.pop(name, None)
# The package and the scripts of bench/ take the compiler and the runtime from there.
config.environment["TRAINC_BUILD"] = config.trainc_binary_dir
# Tests that compile much the same modules share kernels.
config.environment["TRAINC_TEST_CACHE"] = os.path.join(config.test_exec_root, "kernels")
# With TRAINC_AVX2_ONLY set the tests run as on a processor without AVX-512 and AMX.
llvm_config.with_system_environment(["TRAINC_AVX2_ONLY", "TRAINC_PAGE_BYTES"])
avx2_only = bool(config.environment.get("TRAINC_AVX2_ONLY"))

llvm_config.add_tool_substitutions(
    ["FileCheck", "count", "not"], [config.llvm_tools_dir]
)
# lit -D disable_pass=NAME: trainc-opt with that pass as a no-op, which must make the pass's own tests fail.
disabled = lit_config.params.get("disable_pass")
llvm_config.add_tool_substitutions(
    [
        ToolSubst("trainc", pre=r"(?<![-./\w])", post=r"(?![-./\w])"),
        ToolSubst("trainc-opt", extra_args=[f"--disable-pass={disabled}"] if disabled else []),
        "trainc-emulate",
        "trainc-run",
    ],
    [config.trainc_tools_dir],
)
venv_python = os.path.join(config.trainc_source_dir, ".venv", "bin", "python")
python = venv_python if os.path.exists(venv_python) else "python3"
config.substitutions += [
    ("%tools_dir", config.trainc_tools_dir),
    ("%python", python),
    ("%cc", config.c_compiler),
    ("%cxx", config.cxx_compiler),
    ("%runtime_include", os.path.join(config.trainc_source_dir, "runtime", "include")),
    ("%runtime_src", os.path.join(config.trainc_source_dir, "runtime", "src")),
    ("%runtime_lib", config.trainc_library_dir),
    ("%trainc_src", config.trainc_source_dir),
    ("%trainc_build", config.trainc_binary_dir),
    # Few cores, perhaps root in a container.
    ("%mpirun", "mpirun --allow-run-as-root --oversubscribe"),
]
# How communicators are started must not depend on what starts the tests.
for name in list(config.environment):
    if name.startswith(("TRAINC_COORD", "TRAINC_RANK", "TRAINC_HOST", "OMPI_", "PMI_", "SLURM_")):
        config.environment.pop(name)
mpi_plugin = os.path.join(config.trainc_library_dir, "libtrainc_mpi.so")
if os.path.exists(mpi_plugin) and shutil.which("mpirun"):
    config.available_features.add("mpi")
    config.environment["TRAINC_MPI_PLUGIN"] = mpi_plugin


# An installed CUDA toolkit, or what setup.sh --test has put into .venv.
wheels = os.path.join(config.trainc_source_dir, ".venv", "lib", "python3*", "site-packages", "nvidia")
cuda_roots = [os.environ.get("CUDA_ROOT"), os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr",
              *glob.glob(os.path.join(wheels, "cu13")), *glob.glob(os.path.join(wheels, "nccl"))]
cuda_roots = list(filter(None, cuda_roots))
toolkit = next((root for root in cuda_roots if os.path.exists(os.path.join(root, "bin", "ptxas"))), None)
if toolkit:
    config.environment["CUDA_HOME"] = toolkit
    config.environment["PATH"] = os.path.join(toolkit, "bin") + os.pathsep + config.environment["PATH"]


def cuda_file(*names):
    """A file of the CUDA toolkit, or None."""
    paths = [os.path.join(root, name) for root in cuda_roots for name in names]
    return next(filter(os.path.exists, paths), None)


cuda_header = cuda_file("include/cuda.h")
if cuda_header:
    config.available_features.add("cuda-header")
    config.substitutions.append(("%cuda_include", os.path.dirname(cuda_header)))
if cuda_header and os.path.exists(os.path.join(os.path.dirname(cuda_header), "cublasLt.h")):
    config.available_features.add("cublaslt-header")
cublaslt = cuda_file("lib64/libcublasLt.so", "lib/libcublasLt.so", "lib/libcublasLt.so.13")
if cublaslt:
    config.available_features.add("cublaslt")
    config.substitutions.append(("%cublaslt", cublaslt))
nccl_header = cuda_file("include/nccl.h")
if nccl_header:
    config.available_features.add("nccl-header")
    config.substitutions.append(("%nccl_include", os.path.dirname(nccl_header)))
nccl_library = cuda_file("lib/libnccl.so.2", "lib64/libnccl.so.2", "lib/x86_64-linux-gnu/libnccl.so.2")
if nccl_library:
    config.available_features.add("nccl-library")
    config.substitutions.append(("%nccl_library", nccl_library))
cuda_stub = cuda_file("lib64/stubs/libcuda.so", "lib/stubs/libcuda.so")
if cuda_stub:
    config.available_features.add("cuda-stub")
    config.substitutions.append(("%cuda_stub", cuda_stub))


def can_import(*modules):
    command = [python, "-c", "import " + ", ".join(modules)]
    return subprocess.run(command, capture_output=True).returncode == 0


def has_cuda_device():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return (
        cuda.cuInit(0) == 0
        and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
        and count.value > 0
    )


def has_amx():
    """Whether the processor multiplies bf16 by tiles, and the system keeps these for a process that asks."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        if not {"amx_bf16", "amx_tile", "avx512bw", "avx512_bf16"} <= set(f.read().split()):
            return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


# Programs for AArch64 run by qemu where there are libraries and a runtime for them (scripts/build.sh).
aarch64_lib = os.path.join(config.trainc_source_dir, "build-aarch64", "lib")
if shutil.which("qemu-aarch64") and os.path.exists(os.path.join(aarch64_lib, "libtrainc_runtime.a")):
    config.available_features.add("aarch64")
for_aarch64 = " --target=aarch64-linux-gnu -fuse-ld=lld"
config.substitutions += [("%aarch64_lib", aarch64_lib), ("%aarch64_cc", config.c_compiler + for_aarch64),
                         ("%aarch64_cxx", config.cxx_compiler + for_aarch64), ("%qemu_aarch64", "qemu-aarch64 -L /usr/aarch64-linux-gnu")]

if shutil.which("qemu-x86_64"):
    config.available_features.add("qemu")
if has_amx() and not avx2_only:
    config.available_features.add("amx")
# JAX stands for what our tests use of it: with optax, NumPy and ml_dtypes.
packages = {"numpy": ["numpy"], "ml_dtypes": ["ml_dtypes"], "safetensors": ["safetensors"],
            "jax": ["jax", "optax", "numpy", "ml_dtypes"]}
config.available_features |= {name for name, modules in packages.items() if can_import(*modules)}
# PyTorch is in an environment of its own, which setup.sh --torch makes.
torch_venv = os.path.join(config.trainc_source_dir, ".venv-torch")
if os.path.exists(os.path.join(torch_venv, "installed.txt")):
    config.available_features.add("torch")
    config.substitutions.append(("%venv_torch", os.path.join(torch_venv, "bin", "python")))
if shutil.which("clang-format-22"):
    config.available_features.add("clang-format")
path = config.environment["PATH"]
if shutil.which("ptxas", path=path) and shutil.which("mlir-opt", path=path):
    config.available_features.add("ptxas")
if has_cuda_device():
    config.available_features.add("cuda-device")
