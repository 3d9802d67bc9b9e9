"""Models on disk: a folder with ``pcshrink.json`` and ``model.safetensors``, never a pickle."""

from pcshrink.artifact.loading import load
from pcshrink.artifact.reading import read
from pcshrink.artifact.record import Artifact
from pcshrink.artifact.saving import save
from pcshrink.artifact.state_dicts import load_weights

__all__ = ["Artifact", "load", "load_weights", "read", "save"]
