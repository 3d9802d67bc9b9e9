"""A shrinker beside what torch offers: checkpointing, autocast, compilation, saved tensors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import pcshrink as pcs
from pcshrink.errors import SalienceError
from testing.small_net import EXAMPLE, MadeUpData, sgd, small_net, train


def test_non_reentrant_checkpointing_keeps_the_penalty_and_counts_once() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net()

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.net, x, use_reentrant=False)

    torch.manual_seed(0)
    model = Checkpointed()
    plain = copy.deepcopy(model.net)
    shrinkers = [pcs.attach_(m, EXAMPLE, pcs.ShrinkConfig(lam=1.0)) for m in (model, plain)]
    for shrinker in shrinkers:
        shrinker.method.steps = 500
        shrinker.model.train()
    plain.load_state_dict(model.net.state_dict())
    for shrinker in shrinkers:
        (shrinker.model(EXAMPLE).square().mean() + shrinker.penalty()).backward()
        shrinker.step()
    for (name, a), b in zip(model.net.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name)
    for a, b in zip(shrinkers[0].groups, shrinkers[1].groups, strict=True):
        torch.testing.assert_close(a.running, b.running)


def test_reentrant_checkpointing_is_refused_since_the_penalty_would_do_nothing() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net()

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.net, x.requires_grad_(), use_reentrant=True)

    model = Checkpointed()
    shrinker = pcs.attach_(model, EXAMPLE.clone())
    model.train()
    model(EXAMPLE.clone())
    with pytest.raises(SalienceError, match="no gradient"):
        shrinker.penalty()


def test_autocast_keeps_salience_in_float32() -> None:
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(lam=1.0))
    model.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(EXAMPLE)
    assert {s.dtype for gate in shrinker.method.gates.values() for s in gate.recorded} == {torch.float32}
    (out.float().mean() + shrinker.penalty()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_compiled_model_shrinks_like_the_eager_one() -> None:
    torch.manual_seed(0)
    model = small_net()
    eager = copy.deepcopy(model)
    shrinkers = [pcs.attach_(m, EXAMPLE, pcs.ShrinkConfig(total_steps=10, lr=0.05)) for m in (model, eager)]
    eager.load_state_dict(model.state_dict())
    torch._dynamo.reset()
    runners = [torch.compile(model, backend="aot_eager"), eager]
    for shrinker, runner in zip(shrinkers, runners, strict=True):
        train(runner, shrinker, sgd(shrinker), MadeUpData(), 3)
    for (name, a), b in zip(model.state_dict().items(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=name)


def test_attach_to_an_already_compiled_model() -> None:
    model = torch.compile(small_net(), backend="aot_eager")
    shrinker = pcs.attach_(model, EXAMPLE)
    assert len(shrinker.groups) == 4


def test_training_keeps_little_more_memory_than_without_gates() -> None:
    """Peak of what autograd keeps for the backward pass, counted by storage."""

    def kept_bytes(model: nn.Module, extra: Any) -> int:
        storages: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss = model(torch.randn(32, 3, 24, 24)).square().mean() + extra()
        total = sum(storages.values())
        loss.backward()
        return total

    dense, gated = small_net().train(), small_net()
    shrinker = pcs.attach_(gated, EXAMPLE, pcs.ShrinkConfig(lam=1.0))
    gated.train()
    assert kept_bytes(gated, shrinker.penalty) <= 1.2 * kept_bytes(dense, lambda: 0.0)


def test_gates_that_become_constant_are_compiled_once() -> None:
    """Every step has another share; code that depends on the number would be compiled for each."""
    shrinker = pcs.attach_(small_net(), EXAMPLE)
    compiled = 0

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    fast = torch.compile(shrinker.model, backend=backend)
    counts = []
    for share in (0.0, 0.1, 0.2, 0.3, 0.4, 1.0):
        shrinker.settle(share)
        fast(EXAMPLE).sum().backward()
        shrinker.step(pushing=False)
        counts.append(compiled)
    assert counts[1] == counts[-1]  # free gates once, gates on their way once
