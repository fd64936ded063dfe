"""A process that answers requests line by line, and may crash or hang at any of them."""
import os
import subprocess
import tempfile
import threading


class Worker:
    """Started at the first request, and again after a crash."""

    def __init__(self, command, limit, environment=None):
        self.command, self.limit, self.environment = command, limit, environment
        self.process, self.errors = None, None

    def start(self):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        env=self.environment)

    def ask(self, request):
        """(outcome, message) as answered, or ("crash" or "hang", what it wrote last)."""
        if not self.process:
            self.start()
        self.errors.seek(0)
        self.errors.truncate()
        timer = threading.Timer(self.limit, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write((request + "\n").encode())
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        timer.cancel()
        if answer.endswith(b"\n"):
            outcome, _, message = answer.decode("utf-8", "replace").rstrip("\n").partition("\t")
            return outcome, message or self.said()
        status = self.process.wait()
        message = f"status {status}: {self.said()}"
        self.stop()
        return "hang" if status in (-9, -14, -27) else "crash", message

    def said(self):
        """The telling part of standard error."""
        self.errors.seek(0)
        lines = self.errors.read().decode("utf-8", "replace").strip().split("\n")
        for i, line in enumerate(lines):
            if any(word in line for word in ("Assertion", "ERROR:", "runtime error", "error:")):
                return " | ".join(text.strip() for text in lines[i:i + 3])[:600]
        return " | ".join(text.strip() for text in lines[:3])[:600]

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait()
            self.errors.close()
            self.process = None


def environment():
    """Of a worker: what sanitizers need to know."""
    return os.environ | {
        # The shared LLVM libraries are not instrumented, so containers that cross them look corrupt, and what their allocators give away
        # stays poisoned where our code made the slab. To keep the stacks of all allocations takes a fifth of the time.
        "ASAN_OPTIONS": "detect_container_overflow=0:allow_user_poisoning=0:malloc_context_size=1:"
                        "detect_leaks=0:hard_rss_limit_mb=5000:allocator_may_return_null=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
