"""1797 handwritten digits that come with the package, for demos and tests without a network.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, licence CC BY 4.0; the same 1797 images as scikit-learn's
`load_digits`. Changes made here: stored as uint8, with a fixed split (36 test images per class, chosen once
at random and kept in the file).
"""

import importlib.resources

import numpy as np
import torch
import torch.nn.functional as F

from pcshrink.data.array_set import Arrays, ArraySet

DIGITS_SIZE = 16


def load_digits() -> Arrays:
    """Return train images, train labels, test images and test labels.

    The originals have 8 x 8 pixels of 17 grey levels. They are enlarged to 16 x 16 (bilinear) so that a
    network with two halvings of the resolution still sees 4 x 4, and stretched to 0 ... 255. Images are uint8
    (N, 1, 16, 16), labels int64 (N,).

    Example:
        >>> [tuple(part.shape) for part in load_digits()]
        [(1437, 1, 16, 16), (1437,), (360, 1, 16, 16), (360,)]
    """
    resource = importlib.resources.files("pcshrink.data").joinpath("digits.npz")
    with resource.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        raw = torch.from_numpy(stored["images"])  # (N, 8, 8), 0 to 16
        labels = torch.from_numpy(stored["labels"]).long()
        test = torch.from_numpy(stored["test"])
    enlarged = F.interpolate(raw[:, None].float(), size=(DIGITS_SIZE, DIGITS_SIZE), mode="bilinear")
    images = enlarged.mul_(255 / 16).round_().to(torch.uint8)
    return images[~test], labels[~test], images[test], labels[test]


DIGITS = ArraySet(
    name="digits", classes=tuple("0123456789"), mean=(0.3054,), std=(0.3186,), padding=1, flip=False
).data_set(
    lambda root: load_digits(), takes_root=False, description="1797 handwritten digits that come with the package"
)
