"""Machines with known layer times, so that tests need not measure."""

from __future__ import annotations

from typing import Any

import pytest

from pcshrink.measure.layers import LayerTable


def fake_times(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Layer times of a machine that computes blocks of ``step`` channels, without measuring anything."""

    def measure(self: LayerTable, layers: Any) -> None:
        for layer in layers:
            into, out = (-(-width // step) * step for width in (layer.width_in, layer.width_out))
            self.times[layer] = 1e-9 * layer.madds / (layer.width_in * layer.width_out) * into * out

    monkeypatch.setattr(LayerTable, "measure", measure)
