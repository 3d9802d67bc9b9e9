"""Networks by name: the few that timm and torchvision lack, and a way to reach all the others.

`build` makes the networks of this package: ``resnet20``, ``resnet32``, ``resnet44``, ``resnet56``,
``resnet110`` (CIFAR), ``digitsnet``, ``t2t_vit_14``, ``t2t_vit_19``, ``t2t_vit_24`` and ``t2t_vit_t_14``,
``..._19``, ``..._24``. `create` also knows timm, torchvision and the user's own code.
"""

from pcshrink.models.own import build, names
from pcshrink.models.registry import create, default_input
from pcshrink.models.resnet_cifar import CifarResNet
from pcshrink.models.t2t_vit import T2TViT
from pcshrink.models.usual import usual_preprocessing

__all__ = [
    "CifarResNet",
    "T2TViT",
    "build",
    "create",
    "default_input",
    "names",
    "usual_preprocessing",
]
