"""The reference policy of a run: what it is, and how it outlives a kill.

It begins as the initial policy. `every` steps after it was last taken, or once
an average of the KL to it passes `max_kl`, the policy takes its place: the
iterative reference of RPG (Zhang et al., arXiv 2505.17508, section 5, which
names the triggers and gives neither K nor kappa).

On disk a reference is `<directory>/<step>/`, after which it was taken, and is
written with the first checkpoint that needs it. A checkpoint's reference is
the newest one that is not newer than the checkpoint.
"""
import os
import pathlib
import shutil
from typing import Any, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from rlclip import checkpoint
from rlclip.types import Params, TrainState


class Reference:
  """One run's reference; its arrays lie on the mesh as the policy's do."""

  def __init__(self, directory: str | os.PathLike, *, every: int = 0,
               max_kl: float = 0.0, kl_decay: float = 0.9):
    """Holds nothing yet: call `begin` or `restore`.

    Args:
      directory: of the references on disk; made on first use.
      every: steps after which the policy is taken; 0 for never.
      max_kl: average of the metric `kl`, in nats, above which it is taken; 0
        for no limit.
      kl_decay: weight of the past in that average, which begins anew with
        each reference.
    """
    self._directory = pathlib.Path(directory)
    self._every, self._max_kl, self._kl_decay = every, max_kl, kl_decay
    self.params: Params | None = None
    self._is_held = False
    self._step = 0
    self._kl_average: float | None = None

  def begin(self, params: Params, *, held: bool = False) -> None:
    """Takes the initial policy.

    Args:
      params: its weights.
      held: whether they never change and are in every checkpoint, as a base
        beside adapters: then they are neither copied nor written.
    """
    if held:
      self.params, self._step, self._kl_average = params, 0, None
    else:
      self._take(0, params)
    self._is_held = held

  def restore(self, abstract_params: Params, at: int,
              metadata: Mapping[str, Any],
              held: Params | None = None) -> None:
    """Goes on from a checkpoint.

    Args:
      abstract_params: shapes, dtypes and shardings to restore into.
      at: the checkpoint's step. Later references are removed: they will be
        taken again.
      metadata: what `metadata` returned for that checkpoint.
      held: the checkpoint's own copy of the initial policy, if `begin` was
        told of one.

    Raises:
      FileNotFoundError, ValueError: the checkpoint's reference is not there,
        or cannot be read.
    """
    self._remove({step for step in self._steps() if step > at})
    self._step = metadata['step']
    self._is_held = held is not None and self._step == 0
    if self._is_held:
      self.params = held
    else:
      keeper = self._open(read_only=True)
      _, self.params, _ = keeper.restore_params(abstract_params, self._step)
      keeper.close()
    self._kl_average = metadata['kl_average']

  def follow(self, step: int, kl: float, params: Params) -> dict[str, float]:
    """Takes a step's KL into the average, and the policy where it is time.

    Args:
      step: just done.
      kl: mean of the step's metric `kl`, in nats.
      params: the policy after it.

    Returns:
      Metrics: `reference/age`, steps between the reference and the policy that
      sampled, and `reference/kl_average`, both as they were in this step.
    """
    before, decay = self._kl_average, self._kl_decay
    self._kl_average = kl if before is None else (
        decay * before + (1 - decay) * kl)
    values = {'reference/age': float(step - 1 - self._step),
              'reference/kl_average': self._kl_average}
    if (self._every and step - self._step >= self._every) or (
        self._max_kl and self._kl_average > self._max_kl):
      self._take(step, params)
    return values

  def metadata(self) -> dict[str, Any]:
    """JSON values for the checkpoint."""
    return {'step': self._step, 'kl_average': self._kl_average}

  def save(self, checkpoints: checkpoint.Checkpointer) -> None:
    """Writes what a checkpoint about to be saved needs; drops the rest.

    Returns once it is on disk: a checkpoint never lacks its reference.

    Args:
      checkpoints: those that may still be restored.
    """
    checkpoints.wait()
    if not self._is_held and self._step not in self._steps():
      keeper = self._open()
      state = TrainState(np.int32(self._step), self.params, {})
      keeper.save(self._step, state, {})
      keeper.close()  # waits
    steps = self._steps()
    needed = {self._step} | {
        max((s for s in steps if s <= at), default=None)
        for at in checkpoints.steps()}
    self._remove(set(steps) - needed)

  def _take(self, step, params):
    # A copy: the learner donates its own.
    self.params = jax.tree.map(jnp.copy, params)
    self._is_held = False
    self._step, self._kl_average = step, None

  def _remove(self, steps):
    if jax.process_index() == 0:
      for step in steps:
        shutil.rmtree(self._directory / str(step))

  def _open(self, read_only=False):
    # Nothing is dropped but by `save`.
    return checkpoint.Checkpointer(
        self._directory, keep_last=1 << 30, keep_best=0, read_only=read_only)

  def _steps(self):
    """Those on disk, unfinished and damaged ones left out."""
    paths = self._directory.glob('*')
    return sorted(int(path.name) for path in paths if path.name.isdigit())
