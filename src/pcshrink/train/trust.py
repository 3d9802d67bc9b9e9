"""What a recipe may run: it can come from anybody, so that code is run only where the caller says so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pcshrink.data import DATASETS
from pcshrink.errors import ConfigError
from pcshrink.models.registry import resolve
from pcshrink.runtime.registry import RUNTIMES
from pcshrink.train.exports import check_formats
from pcshrink.train.recipe.schema import Recipe

# Arguments of model libraries that name another model, open files of weights in the library's own way, or run what
# lies beside a model.
_FAR_REACHING = re.compile(r"spec|name|model_name|code_revision|.*(pretrained|checkpoint|trust).*")
_ASK = "if you trust it, say --trust on the command line, or train(..., trust=True)"


def import_code(recipe: Recipe, *, trust: bool) -> None:
    """Import all code that a recipe names, before anything is written; from then on the names are known.

    Raises:
        ConfigError: It names code, or has arguments that may run some, and nobody trusts it; or there is no such code.
    """
    _check_model("model", "name", recipe.model.name, recipe.model.args, trust=trust)
    if recipe.distill is not None and recipe.distill.teacher != "dense":
        _check_model("distill", "teacher", recipe.distill.teacher, recipe.distill.args, trust=trust)
    DATASETS.get(recipe.data.name, trust=trust)
    if recipe.shrink is not None and recipe.shrink.latency_budget is not None:
        RUNTIMES.get(recipe.shrink.latency_budget.runtime, trust=trust)
    check_formats(recipe.output.formats, trust=trust)


def _check_model(section: str, key: str, name: str, arguments: Mapping[str, Any], *, trust: bool) -> None:
    if trust:
        return
    if not resolve(name)[0]:
        message = f"{section}.{key}: {name!r} is code of your own, which would be run; {_ASK}"
        raise ConfigError(message)
    for argument in arguments:
        if _FAR_REACHING.fullmatch(str(argument)):
            message = (
                f"{section}.args: {argument!r} may open files and run code; weights are named by {section}.weights "
                f"or {section}.pretrained; {_ASK}"
            )
            raise ConfigError(message)
