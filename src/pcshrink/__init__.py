"""pcshrink: smaller and faster PyTorch networks by Progressive Channel-Shrinking.

The public names and the packages are imported when they are first used, so that ``import pcshrink`` costs nothing.
"""

from typing import TYPE_CHECKING

__version__ = "0.2.0"

__all__ = [
    "PrunePlan",
    "ShrinkConfig",
    "ShrinkError",
    "Shrinker",
    "attach_",
    "compact",
    "detach_",
    "export_onnx",
    "fold",
    "latency",
    "load",
    "profile",
    "save",
    "set_budget",
    "transfer",
    "verify",
]

if TYPE_CHECKING:  # for type checkers and editors; at run time the same names come from _HOMES
    from pcshrink.artifact import load, save
    from pcshrink.budget.own_loop import set_budget
    from pcshrink.errors import ShrinkError
    from pcshrink.export import export_onnx
    from pcshrink.measure import profile
    from pcshrink.measure.latency import latency
    from pcshrink.methods.pcs.config import ShrinkConfig
    from pcshrink.proof.compact import compact
    from pcshrink.proof.verify import verify
    from pcshrink.shrinker import Shrinker, attach_, detach_
    from pcshrink.surgery.fold import fold
    from pcshrink.surgery.memory import transfer
    from pcshrink.surgery.plan import PrunePlan
else:
    _HOMES = {
        "PrunePlan": "surgery.plan",
        "ShrinkConfig": "methods.pcs.config",
        "ShrinkError": "errors",
        "Shrinker": "shrinker",
        "attach_": "shrinker",
        "compact": "proof.compact",
        "detach_": "shrinker",
        "export_onnx": "export",
        "fold": "surgery.fold",
        "latency": "measure.latency",
        "load": "artifact",
        "profile": "measure",
        "save": "artifact",
        "set_budget": "budget.own_loop",
        "transfer": "surgery.memory",
        "verify": "proof.verify",
    }

    def __getattr__(name: str) -> object:
        """Import a public name or a package of pcshrink when it is first asked for."""
        from importlib import import_module

        if name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
            globals()[name] = value  # the next access no longer comes here
            return value
        if not name.startswith("_"):
            try:
                return import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise  # the package is there, and something that it needs is not
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)

    def __dir__() -> list[str]:
        """What is here already, and what would come when asked for."""
        from pkgutil import iter_modules

        modules = {module.name for module in iter_modules(__path__) if not module.name.startswith("_")}
        return sorted({*globals(), *__all__, *modules})
