"""What all sections of a recipe are made of."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Share = Annotated[float, Field(ge=0, le=1)]
Ratio = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # what torch's generators take
AtLeastOne = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Base of all sections: unknown keys are an error, numbers are finite, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, value: object, info: ValidationInfo) -> Any:
        refuse_truth(value, cls.model_fields[str(info.field_name)].annotation)
        return value


def refuse_truth(value: object, annotation: object) -> None:
    """Refuse yes, no, on and off, which YAML reads as truth values, where a number is wanted, also one for a pattern.

    Raises:
        ValueError: It is one.
    """
    kinds = typing.get_args(annotation) or (annotation,)
    if isinstance(value, bool) and (int in kinds or float in kinds) and bool not in kinds:
        message = f"must be a number, got the truth value {value}"
        raise ValueError(message)
    for kind in kinds:
        if isinstance(value, Mapping) and typing.get_origin(kind) is Mapping:
            for part in value.values():
                refuse_truth(part, typing.get_args(kind)[1])
