"""The data sets by name, and what each of them says about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcshrink.common.registry import Registry, entry_of
from pcshrink.data.config import SPECIAL_OPTIONS
from pcshrink.errors import ConfigError

if TYPE_CHECKING:
    from pcshrink.data.source import ImageData


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set that can be loaded.

    Attributes:
        name: What it is called in messages.
        load: ``load(root, config, *, rank, world_size, device)`` gives the ``ImageData``; the arguments are those of
            ``load_dataset``.
        needs_root: Whether there is nothing to load without a folder.
        takes_root: Whether a folder has an effect.
        options: Which of ``SPECIAL_OPTIONS`` have an effect; all others of ``DataConfig`` always have.
        load_val: The same for evaluation alone, where that needs less than ``load``.
        own_statistics: Mean and std are those of the data; False: those that the network is used to.
        description: One line.

    Raises:
        ConfigError: There is no such special option.
    """

    name: str
    load: Callable[..., ImageData]
    load_val: Callable[..., ImageData] | None = None
    needs_root: bool = False
    takes_root: bool = True
    options: tuple[str, ...] = SPECIAL_OPTIONS
    own_statistics: bool = True
    description: str = ""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.options) - set(SPECIAL_OPTIONS))
        if unknown:
            msg = f"options of the data set {self.name!r} must be of {', '.join(SPECIAL_OPTIONS)}; got {unknown}"
            raise ConfigError(msg)

    @classmethod
    def of(cls, name: str, thing: object) -> DataSet:
        """A data set as it is, or one made of a ``load`` function, for which every option may be set.

        Raises:
            ConfigError: It is neither.
        """
        form = "(root, config, *, rank, world_size, device) -> ImageData"
        return entry_of(cls, f"data set {name!r}", thing, form=form, make=lambda load: cls(name=name, load=load))


DATASETS = Registry(
    "data set",
    {
        "digits": "pcshrink.data.digits:DIGITS",
        "cifar10": "pcshrink.data.cifar10.stored:CIFAR10",
        "folder": "pcshrink.data.imagefolder:FOLDER",
        "unlabelled": "pcshrink.data.unlabelled:UNLABELLED",
        "webdataset": "pcshrink.data.webdataset:WEBDATASET",
    },
    DataSet.of,
)
