"""The CUDA sources compile for Hopper; skipped if NVRTC is not installed."""

import importlib.util
from pathlib import Path

import pytest

from smoothcert.kernels import cuda_source, resident_attack, resident_stage

STAGES = [(module, channels) for module in (resident_attack, resident_stage) for channels in (16, 32, 64)]
PACKAGE = importlib.util.find_spec("nvidia")
FOLDERS = PACKAGE.submodule_search_locations if PACKAGE else ()
LIBRARIES = [path for folder in FOLDERS for path in Path(folder).glob("*/lib/libnvrtc.so.*")]

# NVRTC is installed with the CUDA version of torch only; elsewhere, `make test-kernels` installs it.
if LIBRARIES:

    @pytest.fixture(autouse=True)
    def nvrtc(monkeypatch):
        monkeypatch.setattr(cuda_source, "_nvrtc", lambda: cuda_source.load_nvrtc(LIBRARIES[0]))

    @pytest.mark.parametrize(("module", "channels"), STAGES)
    def test_sources_compile(module, channels):
        program = cuda_source.compile_source(module.SOURCE, module.SHAPES[channels].constants(channels), (9, 0))
        assert program.startswith(b"\x7fELF")

    def test_an_error_names_the_file_and_the_cause():
        constants = resident_stage.SHAPES[16].constants(16) | {"WARPS": 3, "LINES": 12}
        with pytest.raises(RuntimeError, match=r"(?s)nvrtcCompileProgram failed on resident_stage.*work must divide"):
            cuda_source.compile_source(resident_stage.SOURCE, constants, (9, 0))
