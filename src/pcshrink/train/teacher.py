"""Who teaches: the network itself before it shrank, or another one by name."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from pcshrink.errors import ConfigError
from pcshrink.train.checkpoint import load_state
from pcshrink.train.recipe.schema import DistillSection
from pcshrink.train.session import Session, blank_model, make_model
from pcshrink.train.together import from_first
from pcshrink.train.weights import load_weights_


def check_teacher(session: Session) -> None:
    """Refuse a teacher that cannot work before any training."""
    section = session.recipe.distill
    if section is not None and section.teacher != "dense":
        _named_teacher(session, section)


def call_teacher(session: Session, section: DistillSection, dense_file: Path) -> nn.Module:
    """The teacher, ready to be asked.

    Args:
        session: The run.
        section: Who it is.
        dense_file: Where the network before it shrank is kept.
    """
    if section.teacher == "dense":
        teacher = blank_model(session.recipe, session.data.num_classes)
        teacher.load_state_dict(from_first(session.fabric, lambda: load_state(dense_file)))
        teacher = session.place(teacher).eval()
    else:
        teacher = _named_teacher(session, section)
    return teacher.requires_grad_(False)


def _named_teacher(session: Session, section: DistillSection) -> nn.Module:
    classes = session.data.num_classes
    teacher, _ = make_model(section.teacher, section.args, classes, pretrained=section.pretrained)
    if section.weights is not None:
        load_weights_(teacher, section.weights)
    teacher = session.place(teacher).eval()
    with torch.no_grad():
        shape = tuple(teacher(session.example).shape)
    if shape != (len(session.example), classes):
        given = f"scores of shape {shape[1:]}, but the data have {classes} classes"
        message = f"distill.teacher {section.teacher!r} gives {given}"
        raise ConfigError(message)
    return teacher
