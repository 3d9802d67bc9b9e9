"""All groups and gates side by side, so that ranking, penalty and running salience take a few operations in all.

A *place* is one channel of one gate; a *unit* is one channel of one group. Most units have one place, those of a
residual stream one for every writer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcshrink.methods import select
from pcshrink.methods.pcs.gate import SalienceGate
from pcshrink.methods.pcs.rules import shrinking_loss
from pcshrink.methods.processes import mean_over_processes, processes


class Units:
    """The units of all groups over the places of all gates.

    Args:
        gates: All gates.
        units: For each gate, the unit of each of its channels; -1 for a channel that belongs to no group.
        sizes: The number of units of each group, which are numbered in that order.
    """

    def __init__(self, gates: list[SalienceGate], units: list[Tensor], sizes: list[int]) -> None:
        self.gates, self.sizes = gates, sizes
        self.widths = [len(u) for u in units]
        self._unit = torch.cat(units)
        self._place = torch.nonzero(self._unit >= 0).flatten()
        self._owner = self._unit[self._place]
        self._count = torch.bincount(self._owner, minlength=sum(sizes))
        self._group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        self._start = torch.repeat_interleave(torch.tensor([0, *sizes]).cumsum(0)[:-1], torch.tensor(sizes))
        norms = [gate.generator.norm for gate in gates if gate.generator.norm is not None]
        self._norms = [norm for norm in norms if norm.running_mean is not None and norm.running_var is not None]
        self.note_statistics()

    def _here(self, device: torch.device) -> None:
        """Follow the model to its device."""
        if self._unit.device != device:
            for name in ("_unit", "_place", "_owner", "_count", "_group", "_start"):
                setattr(self, name, getattr(self, name).to(device))

    def gather(self, places: Tensor) -> Tensor:
        """Values of all places (..., P) -> mean for each unit (..., U)."""
        self._here(places.device)
        total = places.new_zeros(*places.shape[:-1], len(self._group))
        return total.index_add(-1, self._owner, places[..., self._place]) / self._count

    def spread(self, units: Tensor) -> Tensor:
        """Values of all units (..., U) -> places (..., P); 0 where a place belongs to no unit."""
        self._here(units.device)
        places = units.new_zeros(*units.shape[:-1], len(self._unit))
        places[..., self._place] = units[..., self._owner]
        return places

    @property
    def running(self) -> Tensor:
        """The running salience of all units (U,)."""
        return self.gather(torch.cat([gate.running for gate in self.gates]))

    @property
    def gates_passed(self) -> Tensor:
        """How many gates each unit passes (U,)."""
        return self._count.to(self.gates[0].running.device)

    @property
    def worth(self) -> Tensor:
        """The running salience of all units (U,), summed over their places: what is lost if a unit leaves."""
        return self.running * self.gates_passed

    def lowest(self, salience: Tensor, ks: list[int]) -> Tensor:
        """Mark the k lowest units of each group: (..., U) -> bool (..., U)."""
        self._here(salience.device)
        limits = torch.repeat_interleave(torch.tensor(ks), torch.tensor(self.sizes)).to(salience.device)
        # Saliences lie in [0, 1], so an offset of 2 for each group sorts the groups one after the other.
        order = (salience.double() + 2 * self._group).argsort(dim=-1, stable=True)
        rank = torch.arange(salience.shape[-1], device=salience.device) - self._start
        return torch.zeros_like(salience, dtype=torch.bool).scatter(-1, order, (rank < limits).expand_as(order))

    def lowest_globally(self, salience: Tensor, total: int, least: list[int]) -> Tensor:
        """Mark the ``total`` lowest of all units, leaving each group its least number."""
        return torch.cat(select.lowest_globally(list(salience.split(self.sizes)), total, least))

    def loss(self, selected: Tensor | list[int]) -> Tensor:
        """R over all gates, mean over the batch and over repeated calls of a shared layer.

        Args:
            selected: The units pushed down (U,); or k for each group, to choose them for each input by its salience.
        """
        calls = [len(gate.recorded) for gate in self.gates]
        if len(set(calls)) == 1 and len({len(s) for gate in self.gates for s in gate.recorded}) == 1:
            rounds = [torch.cat([gate.recorded[i] for gate in self.gates], dim=-1) for i in range(calls[0])]
            return torch.stack([shrinking_loss(s, self._weights(s, selected)) for s in rounds]).mean()
        return self._loss_of_uneven_calls(selected)

    def _weights(self, salience: Tensor, selected: Tensor | list[int]) -> Tensor:
        if isinstance(selected, list):
            selected = self.lowest(self.gather(salience.detach().clamp(max=1)), selected)
        return self.spread(selected.to(salience.dtype))

    def _loss_of_uneven_calls(self, selected: Tensor | list[int]) -> Tensor:
        """Gates that ran on different numbers or sizes of batches, each averaged over its own."""
        if isinstance(selected, list):
            means = [torch.cat(gate.recorded).detach().clamp(max=1).mean(dim=0) for gate in self.gates]
            selected = self.lowest(self.gather(torch.cat(means)), selected)
        parts = self.spread(selected.to(self.gates[0].running.dtype)).split(self.widths)
        terms = [
            torch.stack([shrinking_loss(s, part) for s in gate.recorded]).mean()
            for gate, part in zip(self.gates, parts, strict=True)
        ]
        return torch.stack(terms).sum()

    @torch.no_grad()
    def update_running(self, alpha: float) -> None:
        """s-bar = (1 - alpha) s-bar + alpha s for every gate that saw a batch; the same on every rank."""
        means = self._means_of_one_pass() or [gate.batch_mean() for gate in self.gates]
        seen = [(gate, mean) for gate, mean in zip(self.gates, means, strict=True) if mean is not None]
        if not seen:
            return
        new = [mean.to(gate.running.dtype) for gate, mean in seen]
        if processes() > 1:
            new = list(mean_over_processes(torch.cat(new)).split([len(m) for m in new]))
        if bool(torch.cat(new).isfinite().all()):  # one bad batch would spoil the average for good
            torch._foreach_lerp_([gate.running for gate, _ in seen], new, alpha)
            self.note_statistics()
        else:
            self.restore_statistics()

    @torch.no_grad()
    def note_statistics(self) -> None:
        """Keep the statistics of the generators' norms as they are after a good batch."""
        self._sound = torch.cat(self._statistics()) if self._norms else None

    @torch.no_grad()
    def restore_statistics(self) -> None:
        """After a bad batch: be as the last good one left them."""
        if self._sound is not None:
            now = self._statistics()
            torch._foreach_copy_(now, list(self._sound.to(now[0].device).split([len(part) for part in now])))

    def _statistics(self) -> list[Tensor]:
        pairs = ((norm.running_mean, norm.running_var) for norm in self._norms)
        return [part for pair in pairs for part in pair if part is not None]

    def _means_of_one_pass(self) -> list[Tensor | None]:
        """The mean salience of every gate at once, if each saw the same single batch; otherwise nothing."""
        usual = all(len(gate.recorded) == 1 and not gate.pending for gate in self.gates)
        if not usual or len({gate.recorded[0].shape[:-1] for gate in self.gates}) > 1:
            return []
        salience = torch.cat([gate.recorded[0] for gate in self.gates], dim=-1)
        for gate in self.gates:
            gate.recorded = ()
        return list(salience.clamp(max=1).mean(dim=0).split(self.widths))
