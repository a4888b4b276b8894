"""Augmentation of training images on the device."""

import torch

from smoothcert.training.batches import crop_and_flip, resized_crop_and_flip


def test_crops_and_flips():
    images = torch.arange(2 * 3 * 32 * 32).remainder(251).byte().view(2, 3, 32, 32) + 1
    many = images.repeat(400, 1, 1, 1)
    views = crop_and_flip(many, 0, 5)
    assert torch.equal(views, crop_and_flip(many, 0, torch.tensor(5)))
    assert not torch.equal(views, crop_and_flip(many, 0, 6))
    assert torch.equal(views[300:], crop_and_flip(many[300:], 0, 5, first=300)), "a rank's share of the mini-batch"
    shifts = set()
    for view, image in zip(views[:200], many, strict=False):
        padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
        matches = [
            (top, left, flip)
            for top in range(9)
            for left in range(9)
            for flip in (0, 1)
            if torch.equal(
                view,
                padded[:, top : top + 32, left : left + 32].flip(2)
                if flip
                else padded[:, top : top + 32, left : left + 32],
            )
        ]
        assert matches, "every view is a shifted image, mirrored or not"
        shifts.add(matches[0])
    tops, lefts, flips = (set(values) for values in zip(*shifts, strict=True))
    assert tops == lefts == set(range(9)), "by up to four pixels either way"
    assert len({shift[:2] for shift in shifts}) > 60
    assert flips == {0, 1}


def test_resized_crops_stay_inside_the_image():
    image = torch.linspace(50, 200, 64).expand(1, 3, 64, 64).byte()
    views = resized_crop_and_flip(image.repeat(500, 1, 1, 1), 0, 0)
    assert views.shape == (500, 3, 64, 64)
    assert torch.equal(views[300:], resized_crop_and_flip(image.repeat(200, 1, 1, 1), 0, 0, first=300))
    assert float(views.min()) >= 49
    assert float(views.max()) <= 200
    spans = (views[:, 0, 0, -1] - views[:, 0, 0, 0]).abs() / 150
    assert 0.2 < float(spans.min()) < 0.4
    assert 0.9 < float(spans.max()) <= 1
