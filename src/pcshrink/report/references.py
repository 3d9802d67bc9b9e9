"""The paper's own rows, to draw beside ours: error in per cent and multiply-adds as the paper counts them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """A published row: network, data set, method, top-1 error in per cent, multiply-adds, as the paper prints them.

    ``note`` says what is known to be wrong about it: figures that the method's own paper contradicts.
    """

    model: str
    data: str
    method: str
    error: float
    madds: float
    note: str = ""


SLIPS = {
    ("resnet32", "SFP"): "printed so; 7.92 % by other papers, 9.2 % is its error on ResNet-20",
    ("resnet20", "Hinge"): "printed so; about 18.8 M by its own paper, where 45.5 % remain",
    ("resnet20", "DHP"): "printed so; about 21.4 M by its own paper, where 51.8 % remain",
}


def _rows(model: str, data: str, unit: float, *rows: tuple[str, float, float]) -> list[Reference]:
    return [
        Reference(model, data, method, error, madds * unit, SLIPS.get((model, method), ""))
        for method, error, madds in rows
    ]


REFERENCES = [
    *_rows("resnet20", "cifar10", 1e6, ("dense", 7.8, 41.4), ("SFP", 9.2, 23.9), ("FPGM", 9.6, 19.0),
           ("DSA", 8.6, 20.6), ("Hinge", 8.2, 22.6), ("DHP", 8.5, 20.0), ("FBS", 9.0, 19.2), ("ManiDP", 8.0, 19.0),
           ("PCS", 8.0, 17.6)),
    *_rows("resnet32", "cifar10", 1e6, ("dense", 7.3, 70.1), ("MIL", 9.3, 48.2), ("SFP", 9.2, 41.0),
           ("FPGM", 8.1, 32.8), ("FBS", 8.0, 31.1), ("ManiDP", 7.9, 25.8), ("PCS", 7.6, 24.9)),
    *_rows("resnet18", "imagenet", 1e9, ("dense", 29.6, 1.8), ("MIL", 33.7, 1.2), ("CGNet", 31.2, 1.0),
           ("ManiDP-A", 31.1, 0.9), ("ManiDP-B", 31.7, 0.8), ("FBS", 31.8, 0.9), ("DGC", 31.2, 0.9),
           ("PCS-C", 30.1, 0.9), ("PCS-B", 29.8, 1.0), ("PCS-A", 29.6, 1.1)),
    *_rows("resnet34", "imagenet", 1e9, ("dense", 26.7, 3.6), ("MIL", 27.0, 2.7), ("CGNet", 28.7, 1.8),
           ("FBS", 28.3, 1.8), ("ManiDP", 27.3, 1.7), ("PCS-B", 26.8, 1.6)),
    *_rows("vgg16", "imagenet", 1e9, ("dense", 28.4, 15.5), ("FBS", 29.5, 3.0), ("PCS-B", 28.5, 2.8)),
]  # fmt: skip


def references_for(model: str, data: str, classes: int | None = None) -> list[Reference]:
    """The rows for a network on a data set; a folder or shards of a thousand classes are taken for ImageNet."""
    short = model.rpartition(":")[2].partition(".")[0]
    place = "imagenet" if data in ("folder", "webdataset") and classes == 1000 else data
    return [row for row in REFERENCES if (row.model, row.data) == (short, place)]
