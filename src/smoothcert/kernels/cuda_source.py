"""Compile CUDA C++ kernels at run time with NVRTC, which comes with PyTorch, and launch them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_DYNAMIC_SHARED_MEMORY, _SHARED_MEMORY_PERCENT = 8, 9  # function attributes in the CUDA driver API
_SHARED_BYTES, _RESERVED_BYTES = 228 * 1024, 1024  # per multiprocessor, and reserved by CUDA per block


class CudaFunction:
    """A compiled kernel on one device.

    A block has `threads` threads and `shared_bytes` bytes of shared memory. Each multiprocessor reserves enough shared
    memory for `resident` blocks.
    """

    def __init__(self, program: bytes, name: str, threads: int, shared_bytes: int, resident: int) -> None:
        self._driver, self._threads, self._shared_bytes = ctypes.CDLL("libcuda.so.1"), threads, shared_bytes
        module, self._function, self._context = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        torch.cuda.synchronize()  # makes the device's context current in this thread, for the driver
        self._call("cuCtxGetCurrent", ctypes.byref(self._context))
        percent = min(100, -(-100 * resident * (shared_bytes + _RESERVED_BYTES) // _SHARED_BYTES))
        self._call("cuModuleLoadData", ctypes.byref(module), program)
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())
        self._call("cuFuncSetAttribute", self._function, _DYNAMIC_SHARED_MEMORY, shared_bytes)
        self._call("cuFuncSetAttribute", self._function, _SHARED_MEMORY_PERCENT, percent)

    def launch(self, blocks: int, *arguments: Tensor | int) -> None:
        """Launch blocks on the current stream. Integers are passed as `long long`."""
        values = [
            ctypes.c_void_p(item.data_ptr()) if isinstance(item, Tensor) else ctypes.c_longlong(item)
            for item in arguments
        ]
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = blocks, 1, 1, self._threads, 1, 1
        self._call("cuCtxSetCurrent", self._context)  # threads of a backward pass may have no context
        self._call("cuLaunchKernel", self._function, *shape, self._shared_bytes, stream, addresses, None)

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._driver, name)(*arguments):
            message = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(message))
            raise RuntimeError(f"{name} failed: {(message.value or b'unknown error').decode()}.")


def compile_source(path: Path, constants: Mapping[str, int], capability: tuple[int, int]) -> bytes:
    """Compile a source file for a compute capability, with `constants` as macros, and return the binary."""
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    major, minor = capability
    options = [
        f"--gpu-architecture=sm_{major}{minor}",
        "--std=c++17",
        f"--include-path={path.parent}",
        *(f"-D{key}={constants[key]}" for key in constants),
    ]

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(nvrtc, name)(*arguments):
            raise RuntimeError(f"{name} failed on {path.name} with error {code}: {read('ProgramLog').decode().strip()}")

    def read(what: str) -> bytes:
        size = ctypes.c_size_t()
        if getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)):
            return b""
        text = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{what}")(program, text)
        return text.raw if what == "CUBIN" else text.value

    source, flags = path.read_bytes(), (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    call("nvrtcCreateProgram", ctypes.byref(program), source, path.name.encode(), 0, None, None)
    try:
        call("nvrtcCompileProgram", program, len(options), flags)
        return read("CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def _nvrtc() -> ctypes.CDLL:
    """Load the NVRTC library of PyTorch's CUDA version, or raise an OSError."""
    name = f"libnvrtc.so.{(torch.version.cuda or '').partition('.')[0]}"
    try:
        return ctypes.CDLL(name)
    except OSError:
        for path in sorted(Path(torch.__file__).parents[1].glob(f"nvidia/*/lib/{name}*")):
            return load_nvrtc(path)
        raise


def load_nvrtc(path: Path) -> ctypes.CDLL:
    """Load NVRTC from a file.

    First load the builtins library in the same folder, which NVRTC would otherwise look for in system folders.
    """
    for needed in path.parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(needed))
    return ctypes.CDLL(str(path))
