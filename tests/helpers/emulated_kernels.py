"""CUDA kernels compiled by g++ and run on emulated threads, see `emulated_cuda.h`."""

import ctypes
import subprocess
from pathlib import Path

import torch

PROGRAM = """
#include "emulated_cuda.h"
#include "{source}"
#include <utility>

template <class... Types, std::size_t... places>
void call(void (*kernel)(Types...), void** arguments, std::index_sequence<places...>) {{
  kernel(*static_cast<Types*>(arguments[places])...);
}}

template <class... Types>
void launch(void (*kernel)(Types...), int blocks, bool backwards, void** arguments) {{
  for (int number = 0; number < blocks; ++number)
    emulated::run(number, threads, IMAGES * image_bytes, backwards,
                  [=] {{ call(kernel, arguments, std::index_sequence_for<Types...>()); }});
}}

extern "C" void run(int blocks, bool backwards, void** arguments) {{ launch({name}, blocks, backwards, arguments); }}
"""
GUARD = 4096  # bytes behind each tensor, which a kernel must leave unchanged


class EmulatedFunction:
    """A kernel with the `launch` of `smoothcert.kernels.cuda_source.CudaFunction`, for tensors on the CPU."""

    def __init__(self, folder, source, name, constants, *, backwards=False):
        library = folder / f"{name}-{'-'.join(map(str, constants.values()))}.so"
        if not library.exists():
            macros = [f"-D{key}={value}" for key, value in constants.items()]
            folders = [f"-I{Path(__file__).parent}", f"-I{source.parent}"]
            command = ["g++", "-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-x", "c++", "-", "-o", library]
            program = PROGRAM.format(source=source.name, name=name)
            subprocess.run([*command, *macros, *folders], input=program.encode(), check=True)
        self.compiled, self.backwards = ctypes.CDLL(str(library)), backwards

    def launch(self, blocks, *arguments):
        guarded, values = [], []
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
                size = argument.untyped_storage().nbytes()
                copy = torch.full((size + GUARD,), 0xAB, dtype=torch.uint8)
                copy[:size] = torch.tensor([], dtype=torch.uint8).set_(argument.untyped_storage())
                guarded.append((argument, size, copy))
                offset = argument.storage_offset() * argument.element_size()
                values.append(ctypes.c_void_p(copy.data_ptr() + offset))
            else:
                values.append(ctypes.c_longlong(argument))
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.compiled.run(blocks, self.backwards, addresses)
        for tensor, size, copy in guarded:
            assert bool((copy[size:] == 0xAB).all()), "the kernel wrote behind a tensor"
            torch.tensor([], dtype=torch.uint8).set_(tensor.untyped_storage()).copy_(copy[:size])
