"""The training loop: steps, epochs, phases, checkpoints, and what to do when something goes wrong."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcshrink.data.source import derive_seed
from pcshrink.errors import ShrinkError
from pcshrink.methods.base import Step
from pcshrink.shrinker import Shrinker
from pcshrink.train.checkpoint import Checkpoints, random_state, set_random_state
from pcshrink.train.console import Console
from pcshrink.train.epoch_row import EpochRow
from pcshrink.train.evaluate import evaluate
from pcshrink.train.interrupt import Interrupted, StopFlag
from pcshrink.train.objective import Objective
from pcshrink.train.observe import Observer
from pcshrink.train.phases import Phases
from pcshrink.train.quick_norms import quick_norms
from pcshrink.train.session import Session
from pcshrink.train.timetable import Timetable
from pcshrink.train.together import from_first

MOST_SKIPS = 3  # bad steps in a row before the run goes back to its last checkpoint
MOST_ROLLBACKS = 2


class DivergedError(ShrinkError, RuntimeError):
    """The loss is not finite and stays so."""


class Loop:
    """Trains a session from where it is to the end.

    Args:
        session: What is trained.
        objective: The task loss.
        folder: Where checkpoints go.
        console: Who is told.
        observer: Who records it.
    """

    def __init__(
        self, session: Session, objective: Objective, folder: Path, console: Console, observer: Observer
    ) -> None:
        self.session, self.objective, self.console, self.observer = session, objective, console, observer
        self.flag = StopFlag()
        self.recipe, self.fabric = session.recipe, session.fabric
        fold_over = self.recipe.shrink.fold_over if self.recipe.shrink is not None else 0.0
        self.timetable = Timetable(self.recipe.epochs, self.recipe.optimizer, fold_over)
        self.phases = Phases(session, objective, folder, self.timetable, console, observer)
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.batches = len(session.data.train)
        self.epoch = self.batch = self.step = 0
        self.sums: dict[str, float] = {}
        self.skips = self.rollbacks = 0
        self.lr_scale = 1.0
        self.resumed = False
        self._saved_at = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs."""
        return {
            "recipe": self.recipe.model_dump(mode="json"),
            "place": {"epoch": self.epoch, "batch": self.batch, "step": self.step},
            "sums": self.sums,
            "trouble": {"skips": self.skips, "rollbacks": self.rollbacks, "lr_scale": self.lr_scale},
            "session": self.session.state(),
            "facts": self.phases.state(),
            "random": random_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        place = state["place"]
        self.epoch, self.batch, self.step = place["epoch"], place["batch"], place["step"]
        self.sums = dict(state["sums"])
        self.skips = state["trouble"]["skips"]
        self.rollbacks, self.lr_scale = state["trouble"]["rollbacks"], state["trouble"]["lr_scale"]
        self.session.load(state["session"])
        self.phases.load(state["facts"])
        self._set_pace()
        self.resumed = True
        if self.fabric.global_rank == 0:
            set_random_state(state["random"])
        else:  # the checkpoint is the first process's
            torch.manual_seed(derive_seed(self.recipe.seed, self.fabric.global_rank, self.step))
        self.console.rewind(self.epoch)
        self.observer.rewind(self.step, self.epoch)

    def save(self) -> None:
        """Write a checkpoint; all processes wait until it is there."""
        from_first(self.fabric, self._write)
        self._saved_at = time.monotonic()

    def _write(self) -> None:
        self.observer.flush()
        self.checkpoints.save(self.step, self.state())

    def begin(self) -> None:
        """Everything before the first step, up to the first checkpoint."""
        self.console.start(self.epoch * self.batches + self.batch, self.timetable.total * self.batches)
        self.session.callbacks.on_start(self)
        if not self.resumed:
            self.observer.start()
            self.phases.enter(0)
            self.save()

    def run(self, flag: StopFlag) -> None:
        """Train to the end.

        Args:
            flag: Whether to stop.

        Raises:
            Interrupted: A signal came; a checkpoint was written.
            DivergedError: The loss is not finite and stays so.
        """
        self.flag = flag
        while self.epoch < self.timetable.total:
            self._epoch()
        self._check_stop()  # what came while the last epoch was closed

    def _epoch(self) -> None:
        began = time.monotonic() - self.sums.get("seconds", 0.0)  # what it took before the run was stopped counts
        self.session.model.train()
        group: list[tuple[Tensor, Tensor, int]] = []
        for images, labels in self.session.data.train.batches(self.epoch, self.batch):
            if self._seen_enough():
                break
            group.append((images, labels, self.batch + len(group)))
            last = self.batch + len(group) == self.batches
            if len(group) < self.recipe.optimizer.accumulate and not last:
                continue
            if self._step(group) == "rolled back":
                return
            self.batch += len(group)
            group = []
            self.sums["seconds"] = time.monotonic() - began
            self._between_steps()
        self._close_epoch()

    def _seen_enough(self) -> bool:
        """Whether the method only looks in this phase, and has looked long enough."""
        shrinker = self.session.shrinker
        watching = shrinker is not None and shrinker.method.watches and self.timetable.phase(self.epoch) == "shrink"
        return watching and shrinker is not None and shrinker.method.seen_enough

    def _between_steps(self) -> None:
        """Stop if asked to; save if it is time."""
        self._check_stop()
        output = self.recipe.output
        due = time.monotonic() - self._saved_at > 60 * output.checkpoint_minutes
        if self.fabric.world_size > 1:
            due = bool(self.fabric.broadcast(due))
        if due or (output.checkpoint_steps and self.step % output.checkpoint_steps == 0 and not self.skips):
            self.save()
        self.console.step(self.epoch * self.batches + self.batch, self.timetable.phase(self.epoch))

    def _check_stop(self) -> None:
        signum = float(self.flag.signum)
        if self.fabric.world_size > 1:
            signum = float(self.fabric.all_reduce(torch.tensor(signum, device=self.fabric.device), reduce_op="max"))
        if signum:
            self.save()
            place = f"epoch {min(self.epoch + 1, self.timetable.total)}, step {self.step}"
            message = f"stopped at {place}; a checkpoint is written"
            raise Interrupted(message, int(signum))

    def _step(self, group: list[tuple[Tensor, Tensor, int]]) -> str:
        """One optimizer step over some batches; "done", "skipped" or "rolled back"."""
        session, shrinker = self.session, self.session.shrinker
        pushing = self.timetable.phase(self.epoch) == "shrink"
        session.callbacks.before_step(self)
        lr = self._at(self.epoch, self.batch)
        if pushing and shrinker is not None and shrinker.method.watches:
            self._watch(shrinker, [images for images, _, _ in group])
            return "done"
        totals = {"loss": 0.0, "penalty": 0.0}
        for index, (images, labels, number) in enumerate(group):
            with self.fabric.no_backward_sync(session.wrapped, enabled=index + 1 < len(group)):
                loss, penalty = self._forward(images, labels, number)
                self.fabric.backward((loss if penalty is None else loss + penalty) / len(group))
            totals["loss"] += float(loss.detach()) / len(group)
            totals["penalty"] += 0.0 if penalty is None else float(penalty.detach()) / len(group)
        if not self._finite(sum(totals.values())):
            session.stepper.zero_grad()
            if shrinker is not None:
                shrinker.method.forget_pass()
            return self._trouble(totals["loss"], lr)
        self.observer.step(totals["loss"], totals["penalty"], pushing=pushing)
        clip = self.recipe.optimizer.clip
        if clip is not None:
            self.fabric.clip_gradients(session.wrapped, session.stepper, max_norm=clip, error_if_nonfinite=False)
        session.stepper.step()
        session.stepper.zero_grad()
        if shrinker is not None:
            shrinker.step(pushing=pushing)
        if session.average is not None:
            session.average.update(session.model)
        self.step += 1
        self.skips = 0
        for name, value in (*totals.items(), ("steps", 1.0)):
            self.sums[name] = self.sums.get(name, 0.0) + value
        session.callbacks.after_step(self)
        return "done"

    def _watch(self, shrinker: Shrinker, batches: list[Tensor]) -> None:
        """A step in which the method looks at the network and nothing is trained."""
        for images in batches:
            shrinker.method.watch(self.session.wrapped, images.to(self.session.dtype))
        shrinker.step()
        self.step += 1
        self.session.callbacks.after_step(self)

    def _at(self, epoch: int, batch: int) -> float:
        """Set learning rate and gates for the step that begins with this batch; the learning rate."""
        place = epoch + batch / self.batches
        lr = self.timetable.lr(place) * self.lr_scale
        for options in self.session.optimizer.param_groups:
            options["lr"] = lr
        self.phases.before_step(place)
        return lr

    def _set_pace(self) -> None:
        """After loading: be as the last step left it, in case an evaluation comes before the next one."""
        done = self.epoch * self.batches + self.batch
        if done:
            epoch, batch = divmod(done - 1, self.batches)
            self._at(epoch, batch - batch % self.recipe.optimizer.accumulate)

    def _forward(self, images: Tensor, labels: Tensor, number: int) -> tuple[Tensor, Tensor | None]:
        """The task loss of a batch, and what the method adds to it."""
        session = self.session
        images = images.to(session.dtype)
        images, partner, own = self.objective.prepare(images, self.epoch, number, self.fabric.global_rank)
        with quick_norms(wanted=self.fabric.device.type == "cpu" and not self.recipe.train.compile):
            scores = session.wrapped(images)
        loss = session.callbacks.on_loss(self, self.objective.loss(scores, images, labels, partner, own))
        phase = self.timetable.phase(self.epoch)
        if session.shrinker is None or not session.shrinker.method.adds_loss(phase):
            return loss, None
        return loss, session.shrinker.penalty(Step(images, labels, scores, loss))

    def _finite(self, loss: float) -> bool:
        """Whether loss and gradients are numbers, in all processes."""
        gradients = [p.grad for p in self.session.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        # With a loss scaler infinite gradients are ordinary; it skips such steps by itself.
        scaled = self.recipe.train.precision == "fp16"
        return not self._anywhere(not (math.isfinite(loss) and (scaled or bool(norm.isfinite()))))

    def _anywhere(self, true_here: bool) -> bool:
        """Whether something holds in any process; all must ask."""
        if self.fabric.world_size == 1:
            return true_here
        votes = torch.tensor(float(true_here), device=self.fabric.device)
        return float(self.fabric.all_reduce(votes, reduce_op="sum")) > 0

    def _trouble(self, loss: float, lr: float) -> str:
        """Skip a step; go back to the last checkpoint when several are bad or the network itself is."""
        self.skips += 1
        buffers = (b for b in self.session.model.buffers() if b.is_floating_point())
        broken = self._anywhere(not all(bool(b.isfinite().all()) for b in buffers))
        self.console.say(f"step {self.step}: loss {loss} or its gradient is not finite; the step is skipped")
        if self.skips <= MOST_SKIPS and not broken:
            return "skipped"
        if self.rollbacks >= MOST_ROLLBACKS:
            message = (
                f"the loss is not finite (step {self.step}, learning rate {lr:.4g}) and going back "
                f"to the last checkpoint {self.rollbacks} times with half the learning rate did not help; "
                "lower optimizer.lr, set optimizer.clip, or check the data"
            )
            raise DivergedError(message)
        rollbacks, scale = self.rollbacks + 1, self.lr_scale / 2
        self.load(from_first(self.fabric, self.checkpoints.newest))
        self.rollbacks, self.lr_scale, self.skips = rollbacks, scale, 0
        self.console.say(f"back to step {self.step}, learning rate halved")
        return "rolled back"

    def _means(self) -> list[float]:
        """Mean task loss and penalty of the epoch, over all processes."""
        steps = max(self.sums.get("steps", 0.0), 1.0)
        means = [self.sums.get(name, 0.0) / steps for name in ("loss", "penalty")]
        if self.fabric.world_size == 1:
            return means
        together: list[float] = self.fabric.all_reduce(
            torch.tensor(means, device=self.fabric.device), reduce_op="mean"
        ).tolist()
        return together

    def _close_epoch(self) -> None:
        """Evaluate, tell, reshape, save."""
        seconds = self.sums.get("seconds", 0.0)
        last = self.epoch + 1 == self.timetable.total
        phase = self.timetable.phase(self.epoch)
        turn = last or self.timetable.phase(self.epoch + 1) != phase
        score = None
        if turn or (self.epoch + 1) % self.recipe.output.eval_every == 0:
            self.session.callbacks.before_evaluation(self)
            # Several processes may have different numbers of batches, so they cannot ask each other in between.
            check = self._check_stop if self.fabric.world_size == 1 else None
            self.session.recalibrate(self.epoch)
            score = evaluate(self.session.best, self.session.data.val, self.fabric, check)
        means = self._means()
        row = EpochRow(
            epoch=self.epoch,
            epochs=self.timetable.total,
            phase=phase,
            step=self.step,
            loss=means[0],
            penalty=means[1],
            error=score.error if score else None,
            val_loss=score.loss if score else None,
            lr=float(self.session.optimizer.param_groups[0]["lr"]),
            seconds=seconds,
            images_per_second=self.batch * self.recipe.data.settings.batch_size / max(seconds, 1e-9),
        )
        self._tell(self.phases.complete(row))
        self.phases.leave(self.epoch)
        self.epoch, self.batch, self.sums = self.epoch + 1, 0, {}
        if self.epoch < self.timetable.total:
            self.phases.enter(self.epoch)
        self.save()

    def _tell(self, row: EpochRow) -> None:
        if self.fabric.is_global_zero:
            self.console.record(row)
        self.observer.epoch(row)
        self.session.callbacks.after_epoch(self, row.to_dict())
