"""Random crop, flip and cutout of a whole batch at once; the random numbers come from outside."""

import torch
import torch.nn.functional as F
from torch import Tensor


def crop_and_flip(images: Tensor, offsets: Tensor, flips: Tensor, padding: int, *, reflect: bool = False) -> Tensor:
    """Crop every image at its own place in its padded self, and mirror some.

    Args:
        images: Any dtype, (B, C, H, W).
        offsets: Row and column of the crop's corner in the padded image, 0 to twice the padding, (B, 2).
        flips: True where the crop is mirrored left to right, (B,).
        padding: Pixels added on each side.
        reflect: What is added is the image itself, mirrored at its edge, instead of zeros.

    Example:
        >>> image = torch.tensor([[[[1, 2], [3, 4]]]])
        >>> crop_and_flip(image, torch.tensor([[1, 2]]), torch.tensor([False]), padding=1).tolist()
        [[[[2, 0], [4, 0]]]]
    """
    B, C, H, W = images.shape
    padded = images.contiguous() if reflect else F.pad(images, (padding,) * 4)
    rows = offsets[:, :1] + torch.arange(H, device=images.device)  # (B, H)
    columns = offsets[:, 1:] + torch.arange(W, device=images.device)  # (B, W)
    if reflect:
        rows, columns = _mirrored(rows - padding, H), _mirrored(columns - padding, W)
    columns = torch.where(flips[:, None], columns.flip(1), columns)
    # One gather for crop and flip together: half the time of strided windows followed by a flip.
    flat = rows[:, :, None] * padded.shape[3] + columns[:, None, :]  # (B, H, W)
    index = flat.view(B, 1, H * W).expand(B, C, H * W)
    return padded.view(B, C, -1).gather(2, index).view(B, C, H, W)


def _mirrored(places: Tensor, length: int) -> Tensor:
    """Places beyond either end, counted back from it: -1 is 1, ``length`` is ``length - 2``."""
    places = places.abs()
    return torch.minimum(places, 2 * (length - 1) - places)


def cutout_(images: Tensor, centres: Tensor, size: int) -> None:
    """Set a square of side `size` around each image's centre to 0; it may hang over the edge.

    Applied after the normalisation, so 0 is the mean colour.

    Args:
        images: Changed in place, (B, C, H, W).
        centres: Row and column, (B, 2).
        size: Side of the square.
    """
    inside = []
    for axis, length in enumerate(images.shape[2:]):
        start = centres[:, axis, None] - size // 2
        place = torch.arange(length, device=images.device)
        inside.append((place >= start) & (place < start + size))  # (B, H), (B, W)
    wiped = inside[0][:, :, None] & inside[1][:, None, :]
    images.masked_fill_(wiped[:, None], 0.0)


class Normalizer:
    """Turns uint8 images into normalised float32 ones.

    Args:
        mean: Per channel, on the scale 0 to 1.
        std: Per channel, on the scale 0 to 1.
        device: Where the images are.

    Example:
        >>> Normalizer((0.5,), (0.5,))(torch.tensor([[[[0, 255]]]], dtype=torch.uint8)).tolist()
        [[[[-1.0, 1.0]]]]
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device | str = "cpu") -> None:
        self._shift = torch.tensor(mean, device=device).mul(255).view(1, -1, 1, 1)
        self._scale = torch.tensor(std, device=device).mul(255).reciprocal().view(1, -1, 1, 1)

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise images of shape (B, C, H, W)."""
        # Two plain steps: a fused one may round the vectorised part and the rest of a tensor differently.
        return images.to(torch.float32).sub_(self._shift).mul_(self._scale)
