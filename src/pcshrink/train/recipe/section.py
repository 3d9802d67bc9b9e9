"""What all sections of a recipe are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Ratio = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Base of all sections: unknown keys are an error, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
