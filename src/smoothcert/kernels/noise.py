"""Triton kernels for the random numbers of `smoothcert.philox`, and for noisy copies of images.

The random words are bit-identical to those of `smoothcert.philox`. Normal values differ from the CPU's by a few
units in the last place, because the device computes logarithm and cosine in its own way.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,import-untyped,import-not-found,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from smoothcert.kernels.operators import operator

_BLOCK = 256


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, 0xD2511F53), c0 * 0xD2511F53
        high1, low1 = tl.umulhi(c2, 0xCD9E8D57), c2 * 0xCD9E8D57
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def _pair(radius_word, angle_word):
    unit: tl.constexpr = 2.0**-32
    radius = tl.sqrt(-2.0 * tl.log(radius_word.to(tl.float32) * unit + unit / 2))
    angle = angle_word.to(tl.float32) * (6.283185307179586 * unit)
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit
def _words(first, second, third, group, k0, k1):
    c0 = group.to(tl.uint32)
    return _philox(c0, c0 * 0 + first, c0 * 0 + second, c0 * 0 + third, k0, k1)


@triton.jit
def _normals(first, second, third, group, k0, k1):
    """Return four normal values for each group, in the order in which they are stored."""
    w0, w1, w2, w3 = _words(first, second, third, group, k0, k1)
    z0, z1 = _pair(w0, w1)
    z2, z3 = _pair(w2, w3)
    return tl.interleave(tl.interleave(z0, z2), tl.interleave(z1, z3))


@triton.jit
def _uniforms(first, second, third, group, k0, k1):
    """Return four uniform values for each group, in the order in which they are stored."""
    w0, w1, w2, w3 = _words(first, second, third, group, k0, k1)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    unit: tl.constexpr = 2.0**-24
    return (words >> 8).to(tl.float32) * unit


@triton.jit(do_not_specialize=["k0", "k1"])
def _draw_kernel(out, first, second, third, k0, k1, size, gaussian: tl.constexpr, block: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group = part * block + tl.arange(0, block)
    a, b, c = (tl.load(first + row), tl.load(second + row), tl.load(third + row))
    a, b, c, k0, k1 = a.to(tl.uint32), b.to(tl.uint32), c.to(tl.uint32), k0.to(tl.uint32), k1.to(tl.uint32)
    values = _normals(a, b, c, group, k0, k1) if gaussian else _uniforms(a, b, c, group, k0, k1)
    place = part * 4 * block + tl.arange(0, 4 * block)
    tl.store(out + row * size + place, values, mask=place < size)


@triton.jit(do_not_specialize=["k0", "k1"])
def _noisy_kernel(out, inputs, image, index, sample, third, sigma, k0, k1, size, block: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group = part * block + tl.arange(0, block)
    which = tl.load(image + row)
    a, b = tl.load(sample + row), tl.load(index + which)
    c = (which * 0 + third).to(tl.uint32)
    noise = _normals(a.to(tl.uint32), b.to(tl.uint32), c, group, k0.to(tl.uint32), k1.to(tl.uint32))
    place = part * 4 * block + tl.arange(0, 4 * block)
    x = tl.load(inputs + which * size + place, mask=place < size)
    tl.store(out + row * size + place, (x + sigma * noise).to(out.dtype.element_ty), mask=place < size)


@triton.jit
def _guess(drawn, scale):
    """Approximate `scale` times the normal quantile of drawn / 2**60.

    Formula 26.2.23 of Abramowitz and Stegun gives the quantile with an error below 4.5e-4.
    """
    upper = drawn >= (1 << 59)
    tail = tl.where(upper, (1 << 60) - 1 - drawn, drawn).to(tl.float32) + 0.5
    w = tl.sqrt(-2.0 * tl.log(tail * 2.0**-60))
    z = w - ((0.010328 * w + 0.802853) * w + 2.515517) / (((0.001308 * w + 0.189269) * w + 1.432788) * w + 1.0)
    return tl.where(upper, z, -z) * scale


@triton.jit
def _at_most(table, count, drawn, steps: tl.constexpr):
    """Count by bisection, for each value of `drawn`, the sorted thresholds that are at most this value."""
    below = tl.zeros_like(drawn)
    for i in tl.static_range(steps):
        tried = below + (1 << (steps - 1 - i))
        bound = tl.load(table + tried - 1, mask=tried <= count, other=1 << 62)
        below = tl.where(bound <= drawn, tried, below)
    return below


@triton.jit(do_not_specialize=["k0", "k1"])
def _grid_kernel(
    out, inputs, image, index, sample, third, table, count, offset, scale, low, high, k0, k1, size,
    steps: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group = part * block + tl.arange(0, block)
    which = tl.load(image + row)
    a, b = tl.load(sample + row), tl.load(index + which)
    c = (which * 0 + third).to(tl.uint32)
    w0, w1, w2, w3 = _words(a.to(tl.uint32), b.to(tl.uint32), c, group, k0.to(tl.uint32), k1.to(tl.uint32))
    first = (w0.to(tl.int64) << 28) | (w1.to(tl.int64) >> 4)
    second = (w2.to(tl.int64) << 28) | (w3.to(tl.int64) >> 4)
    drawn = tl.interleave(first, second)
    # The guess is almost always exact or one too low. Verifying it needs fewer table reads than a search.
    below = offset + tl.floor(_guess(drawn, scale) + 0.25).to(tl.int64)
    below = tl.minimum(tl.maximum(below, 0), count)
    below += (tl.load(table + below, mask=below < count, other=1 << 62) <= drawn).to(tl.int64)
    before = tl.load(table + below - 1, mask=below > 0, other=-1)
    after = tl.load(table + below, mask=below < count, other=1 << 62)
    if tl.max(((before > drawn) | (after <= drawn)).to(tl.int32), axis=0) > 0:
        below = _at_most(table, count, drawn, steps)
    place = part * 2 * block + tl.arange(0, 2 * block)
    x = tl.load(inputs + which * size + place, mask=place < size, other=0.0)
    pixel = tl.floor(x * 255.0 + 0.5).to(tl.int64)
    noisy = tl.minimum(tl.maximum(pixel + below - offset, low), high)
    value = tl.div_rn(noisy.to(tl.float32), tl.full([2 * block], 255.0, tl.float32))
    tl.store(out + row * size + place, value.to(out.dtype.element_ty), mask=place < size)


@operator("smoothcert::draw")
def draw(seed: int, first: Tensor, second: Tensor, third: Tensor, size: int, gaussian: bool) -> Tensor:
    """Draw `size` values for every address (`first`, `second`, `third`).

    The values are standard normal if `gaussian`, else uniform in [0, 1).
    """
    words = torch.broadcast_tensors(first, second, third)
    flat = [word.reshape(-1).contiguous() for word in words]
    out = torch.empty(*words[0].shape, size, device=flat[0].device)
    if out.numel():
        block = max(16, min(_BLOCK, triton.next_power_of_2(triton.cdiv(size, 4))))
        grid = _grid(len(flat[0]), size, block)
        with torch.cuda.device_of(out):
            _draw_kernel[grid](out, *flat, *_key(seed), size, gaussian=gaussian, block=block)
    return out


@draw.register_fake
def _(seed: int, first: Tensor, second: Tensor, third: Tensor, size: int, gaussian: bool) -> Tensor:
    shape = torch.broadcast_shapes(first.shape, second.shape, third.shape)
    return torch.empty(*shape, size, device=first.device)


def noisy_copies(
    inputs: Tensor, image: Tensor, indices: Tensor, samples: Tensor, *,
    sigma: float, seed: int, purpose: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Return inputs[image] plus Gaussian noise, computed in float32 and cast to `dtype`.

    Row r of the result is inputs[image[r]] plus noise sample number samples[r] of the image with index
    indices[image[r]].
    """
    size = inputs[0].numel()
    out = torch.empty(len(image), *inputs.shape[1:], dtype=dtype, device=inputs.device)
    grid = _grid(len(image), size, _BLOCK)
    flat = (inputs.contiguous(), image.contiguous(), indices.contiguous(), samples.contiguous())
    with torch.cuda.device_of(out):
        _noisy_kernel[grid](out, *flat, purpose, sigma, *_key(seed), size, block=_BLOCK)
    return out


def grid_copies(
    inputs: Tensor, image: Tensor, indices: Tensor, samples: Tensor, *,
    table: Tensor, offset: int, sigma: float, limits: tuple[int, int], seed: int, purpose: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Return inputs[image], rounded to 8 bits, plus integer noise; clip to `limits`, divide by 255 and cast to `dtype`.

    Rows and noise samples are chosen as in `noisy_copies`. `table` and `offset` come from the `Thresholds` for `sigma`
    (see `smoothcert.statistics.integer_noise`).
    """
    size, block = inputs[0].numel(), _BLOCK
    out = torch.empty(len(image), *inputs.shape[1:], dtype=dtype, device=inputs.device)
    grid = (len(image), triton.cdiv(size, 2 * block))
    flat = (inputs.contiguous(), image.contiguous(), indices.contiguous(), samples.contiguous())
    numbers = (len(table), offset, 255.0 * sigma, *limits)
    with torch.cuda.device_of(out):
        _grid_kernel[grid](
            out, *flat, purpose, table, *numbers, *_key(seed), size, steps=len(table).bit_length(), block=block
        )
    return out


def _key(seed: int) -> tuple[int, int]:
    return seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF


def _grid(rows: int, size: int, block: int) -> tuple[int, int]:
    return rows, triton.cdiv(size, 4 * block)
