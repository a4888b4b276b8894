"""Check the kernels' random generator against the known answers of Random123, on counters that no draw reaches."""

import torch
import triton
import triton.language as tl

from smoothcert.kernels import noise

# Counter, key, result of philox4x32 with ten rounds.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@triton.jit
def _encrypt_kernel(out, counter, key):
    place = tl.arange(0, 1)
    group, first = tl.load(counter + place), tl.load(counter + 1).to(tl.uint32)
    second, third = tl.load(counter + 2).to(tl.uint32), tl.load(counter + 3).to(tl.uint32)
    k0, k1 = tl.load(key).to(tl.uint32), tl.load(key + 1).to(tl.uint32)
    w0, w1, w2, w3 = noise._words(first, second, third, group, k0, k1)
    tl.store(out + place, w0.to(tl.int64))
    tl.store(out + 1 + place, w1.to(tl.int64))
    tl.store(out + 2 + place, w2.to(tl.int64))
    tl.store(out + 3 + place, w3.to(tl.int64))


def wrong_answers(device):
    """Return the number of known answers that the kernels' generator does not reproduce."""
    wrong = 0
    for texts in KNOWN:
        counter, key, expected = (torch.tensor([int(word, 16) for word in text.split()]) for text in texts)
        out = torch.zeros(4, dtype=torch.int64, device=device)
        _encrypt_kernel[(1,)](out, counter.to(device), key.to(device))
        wrong += not torch.equal(out.cpu(), expected)
    return wrong
