"""The CUDA driver from Python, as far as the suite for GPUs needs it: memory, copies, launches, times of the device.

The library is libcuda.so.1 or what TRAINC_LIBCUDA in the environment names, as in the runtime.
"""
import ctypes
import os
import time
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

NON_BLOCKING = 1
THREAD_LOCAL = 1  # captures
MAJOR, MINOR, PROCESSORS = 75, 76, 16  # attributes
NOT_READY = 600


class Refused(Exception):
    pass


class Device:
    """A GPU, its primary context (that of PyTorch and of the runtime, too) and a stream."""

    def __init__(self, ordinal=0):
        self.library = ctypes.CDLL(os.environ.get("TRAINC_LIBCUDA", "libcuda.so.1"))
        self.pinned, self.pinned_bytes = None, 0
        self.call("cuInit", 0)
        self.device, self.context, self.stream = c_int(), c_void_p(), c_void_p()
        self.call("cuDeviceGet", byref(self.device), c_int(ordinal))
        self.call("cuDevicePrimaryCtxRetain", byref(self.context), self.device)
        self.call("cuCtxPushCurrent_v2", self.context)
        self.call("cuStreamCreate", byref(self.stream), c_uint(NON_BLOCKING))

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            text = c_char_p()
            self.library.cuGetErrorString(c_int(status), byref(text))
            raise Refused(f"{name}: {(text.value or b'error ' + str(status).encode()).decode()}")

    def attribute(self, number):
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), c_int(number), self.device)
        return value.value

    def about(self):
        name, version = ctypes.create_string_buffer(256), c_int()
        self.call("cuDeviceGetName", name, c_int(256), self.device)
        self.call("cuDriverGetVersion", byref(version))
        return dict(name=name.value.decode(), arch=f"sm_{self.attribute(MAJOR)}{self.attribute(MINOR)}",
                    processors=self.attribute(PROCESSORS), memory=self.memory()[1],
                    cuda=f"{version.value // 1000}.{version.value % 1000 // 10}")

    def memory(self):
        """(free, total)"""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def allocate(self, nbytes):
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(nbytes))
        return address.value

    def release(self, address):
        self.call("cuMemFree_v2", c_uint64(address))

    def fill(self, address, nbytes, value=0):
        self.call("cuMemsetD8Async", c_uint64(address), ctypes.c_ubyte(value), c_size_t(nbytes), self.stream)

    def copy(self, to, source, nbytes):
        self.call("cuMemcpyDtoDAsync_v2", c_uint64(to), c_uint64(source), c_size_t(nbytes), self.stream)

    def staging(self, nbytes):
        """Pinned memory of the host, of at least so many bytes; it stays for the next copy."""
        if nbytes > self.pinned_bytes:
            if self.pinned:
                self.call("cuMemFreeHost", self.pinned)
            self.pinned, self.pinned_bytes = c_void_p(), nbytes
            self.call("cuMemHostAlloc", byref(self.pinned), c_size_t(nbytes), c_uint(0))
        return self.pinned

    def upload(self, address, array):
        """Returns when it is there."""
        pinned = self.staging(array.nbytes)
        ctypes.memmove(pinned, array.ctypes.data_as(c_void_p), array.nbytes)
        self.call("cuMemcpyHtoDAsync_v2", c_uint64(address), pinned, c_size_t(array.nbytes), self.stream)
        self.wait()

    def download(self, address, array):
        pinned = self.staging(array.nbytes)
        self.call("cuMemcpyDtoHAsync_v2", pinned, c_uint64(address), c_size_t(array.nbytes), self.stream)
        self.wait()
        ctypes.memmove(array.ctypes.data_as(c_void_p), pinned, array.nbytes)
        return array

    def kernels(self, image, *names):
        """Functions of an image, which stays loaded."""
        module, functions = c_void_p(), []
        self.call("cuModuleLoadDataEx", byref(module), c_char_p(image), c_uint(0), None, None)
        for name in names:
            functions.append(c_void_p())
            self.call("cuModuleGetFunction", byref(functions[-1]), module, c_char_p(name.encode()))
        return functions

    def launch(self, function, blocks, threads, *arguments):
        """Arguments are ctypes values."""
        pointers = (c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        self.call("cuLaunchKernel", function, c_uint(blocks), c_uint(1), c_uint(1), c_uint(threads), c_uint(1), c_uint(1),
                  c_uint(0), self.stream, pointers, None)

    def graph(self, work):
        """What launches all that work() hands over as one graph."""
        graph, executable = c_void_p(), c_void_p()
        self.call("cuStreamBeginCapture_v2", self.stream, c_uint(THREAD_LOCAL))
        work()
        self.call("cuStreamEndCapture", self.stream, byref(graph))
        self.call("cuGraphInstantiateWithFlags", byref(executable), graph, ctypes.c_ulonglong(0))
        self.call("cuGraphDestroy", graph)
        return lambda: self.call("cuGraphLaunch", executable, self.stream)

    def event(self):
        event = c_void_p()
        self.call("cuEventCreate", byref(event), c_uint(0))
        return event

    def wait(self):
        while True:
            status = self.library.cuStreamQuery(self.stream)
            if status == 0:
                return
            if status != NOT_READY:
                self.call("cuStreamQuery", self.stream)
            time.sleep(0)

    def milliseconds(self, work):
        """The device's time for what work() hands over."""
        begin, end, ms = self.event(), self.event(), c_float()
        self.call("cuEventRecord", begin, self.stream)
        work()
        self.call("cuEventRecord", end, self.stream)
        self.wait()
        self.call("cuEventElapsedTime", byref(ms), begin, end)
        for event in (begin, end):
            self.call("cuEventDestroy_v2", event)
        return ms.value
