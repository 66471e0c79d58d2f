"""Checkpoints of a run: asynchronous, the last ones and the best, by orbax.

A checkpoint is a folder `<step>/` with three items: `params`, `optimizer`
(step and optax state) and `metadata` (JSON). It appears under its name only
once it is whole, so a kill at any moment leaves whole checkpoints behind.
"""
import contextlib
import json
import logging
import math
import os
import pathlib
import shutil
from typing import Any, Literal, Mapping, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from rlclip import types, workdir

_KEPT = 'Earlier checkpoints are whole. '
_ITEMS = ('params', 'optimizer', 'metadata')
_log = logging.getLogger(__name__)


class Restored(NamedTuple):
  """What a checkpoint held, and its step."""
  step: int
  state: types.TrainState
  metadata: dict[str, Any]


class Checkpointer:
  """Saves and restores train states in one folder.

  Every process of a multi-process run makes one and makes the same calls.
  """

  def __init__(
      self, directory: str | os.PathLike, *, keep_last: int = 2,
      keep_best: int = 1, best_metric: str = 'pass@1',
      best_mode: Literal['max', 'min'] = 'max', read_only: bool = False):
    """Opens the folder and removes what a killed save left unfinished.

    Args:
      directory: the folder of `<step>/` folders; made on first use.
      keep_last: newest checkpoints kept, 1 or more.
      keep_best: checkpoints kept for the best `best_metric`; the newer one
        of two equal ones; 0 for none.
      best_metric: the name in `metrics` of `save` that ranks checkpoints.
      best_mode: whether high or low is good.
      read_only: restore only, and touch nothing.
    """
    if keep_last < 1 or keep_best < 0 or best_mode not in ('max', 'min'):
      raise ValueError(
          'Checkpointer needs keep_last >= 1, keep_best >= 0 and best_mode '
          f'max or min, got {keep_last}, {keep_best}, {best_mode!r}.')
    self._directory = pathlib.Path(directory).absolute()
    self._best_metric = best_metric
    self._worst = -math.inf if best_mode == 'max' else math.inf
    policy = ocp.checkpoint_managers.AnyPreservationPolicy([
        ocp.checkpoint_managers.LatestN(keep_last),
        ocp.checkpoint_managers.BestN(
            get_metric_fn=self._rank, n=keep_best, reverse=best_mode == 'min',
            keep_checkpoints_without_metrics=False)])
    self._read_only = read_only
    with workdir.disk_errors(self._directory):
      self._manager = ocp.CheckpointManager(
          self._directory, options=ocp.CheckpointManagerOptions(
              preservation_policy=policy,
              save_decision_policy=(
                  ocp.checkpoint_managers.FixedIntervalPolicy(1)),
              best_fn=self._rank, best_mode=best_mode,  # makes it store metrics
              cleanup_tmp_directories=not read_only, create=not read_only,
              save_interval_steps=int(not read_only), read_only=read_only),
          item_handlers={
              'params': ocp.StandardCheckpointHandler(),
              'optimizer': ocp.StandardCheckpointHandler(),
              'metadata': ocp.JsonCheckpointHandler()})

  def save(
      self, step: int, state: types.TrainState, metadata: Mapping[str, Any],
      metrics: Mapping[str, float] | None = None) -> bool:
    """Copies the state to host memory and starts to write it.

    `state` may be donated as soon as this returns. An error of the writing
    itself is raised by the next `save`, `wait` or `close`.

    Args:
      step: RL step after which this is the state; names the folder.
      state: pytrees of jax arrays, sharded in any way.
      metadata: JSON values: config, versions, positions.
      metrics: where `best_metric` was measured at this step, its value.

    Returns:
      False if the folder holds this step already: then nothing is written.

    Raises:
      OSError: if the disk is full. Earlier checkpoints are kept.
      ValueError: if `metadata` is no JSON.
    """
    try:
      json.dumps(metadata)
    except TypeError as error:
      raise ValueError(
          f'Checkpoint metadata must be JSON values, got {error}. Convert '
          'arrays and numpy scalars first.') from error
    self.wait()
    if step in self.steps():
      _log.info('Checkpoint %d is there already.', step)
      return False
    value = (metrics or {}).get(self._best_metric)
    measured = {self._best_metric: None if value is None else float(value)}
    with self._writing():
      return self._manager.save(step, metrics=measured, args=ocp.args.Composite(
          params=ocp.args.StandardSave(state.params),
          optimizer=ocp.args.StandardSave(_without_params(state)),
          metadata=ocp.args.JsonSave(dict(metadata))))

  def steps(self) -> tuple[int, ...]:
    """Steps of the finished checkpoints, ascending."""
    return tuple(sorted(self._manager.all_steps()))

  def latest(self) -> int | None:
    """The newest step, or None."""
    return max(self.steps(), default=None)

  def best(self) -> int | None:
    """The step with the best metric (the newer of two equal), or None."""
    ranks = {step: self._rank(self._manager.metrics(step) or {})
             for step in self.steps()}
    ranks = {step: rank for step, rank in ranks.items() if rank != self._worst}
    sign = 1 if self._worst < 0 else -1
    return max(
        ranks, key=lambda step: (sign * ranks[step], step), default=None)

  def restore(
      self, abstract_state: types.TrainState,
      step: int | None = None) -> Restored:
    """Reads a state into the shardings asked for, on whatever mesh.

    Args:
      abstract_state: jax.ShapeDtypeStruct leaves with shardings.
      step: which one; None takes the newest whole one, and says (in the log)
        which newer ones it passed over. Those are renamed `<step>.damaged`
        unless read_only.

    Raises:
      FileNotFoundError: if there is none, or not this one.
      ValueError: if its tree, shapes or dtypes differ from the ones asked
        for (names the first leaf), or if it cannot be read.
    """
    wanted = {'params': abstract_state.params,
              'optimizer': _without_params(abstract_state)}
    step, items = self._restore(wanted, step)
    state = types.TrainState(params=items['params'], **items['optimizer'])
    return Restored(step, state, items['metadata'])

  def restore_params(
      self, abstract_params: types.Params, step: int | None = None
  ) -> tuple[int, types.Params, dict[str, Any]]:
    """Reads parameters and metadata alone: `restore` without the optimizer."""
    step, items = self._restore({'params': abstract_params}, step)
    return step, items['params'], items['metadata']

  def wait(self) -> None:
    """Blocks until the last `save` is on disk; raises its error."""
    with self._writing():
      self._manager.wait_until_finished()

  def close(self) -> None:
    """Waits, then ends the threads."""
    with self._writing():
      self._manager.close()

  def _rank(self, metrics):
    # A NaN would leave the sort undefined.
    value = metrics.get(self._best_metric)
    return self._worst if value is None or math.isnan(value) else value

  @contextlib.contextmanager
  def _writing(self):
    try:
      with workdir.disk_errors(self._directory, _KEPT):
        yield
    except OSError:
      # orbax takes a failed save, and what it would have replaced, for done.
      self._manager.reload()
      raise

  def _restore(self, wanted, step):
    self.wait()
    self._manager.reload()
    steps = self.steps()
    if step is not None and step not in steps:
      raise FileNotFoundError(
          f'{self._directory} holds no checkpoint {step}; it holds '
          f'{list(steps) or "none"}.')
    if not steps:
      raise FileNotFoundError(
          f'{self._directory} holds no finished checkpoint. Check the path, '
          'or train first.')
    damage = {}
    for candidate in [step] if step is not None else reversed(steps):
      items, reason = self._read(candidate, wanted)
      if items is not None:
        self._set_aside(damage)
        return candidate, items
      damage[candidate] = reason
    reasons = '; '.join(f'{at}: {reason}' for at, reason in damage.items())
    raise ValueError(
        f'No checkpoint in {self._directory} can be read. {reasons}. Restore '
        'the folder from a copy, or start again in another --workdir.')

  def _read(self, step, wanted):
    """Returns (items, None), or (None, why the checkpoint is not whole)."""
    missing = [item for item in _ITEMS
               if not (self._directory / str(step) / item).is_dir()]
    if missing:
      return None, f'{missing[0]}/ is missing'
    try:
      stored = self._manager.item_metadata(step)
      trees = {item: stored[item].tree for item in wanted}
    except (OSError, ValueError, KeyError, AttributeError) as error:
      return None, f'its list of arrays cannot be read ({_first_line(error)})'
    for item, tree in wanted.items():
      _check_same(tree, trees[item], f'{self._directory}/{step}/{item}')
    arguments = {item: ocp.args.StandardRestore(tree)
                 for item, tree in wanted.items()}
    try:
      return self._manager.restore(step, args=ocp.args.Composite(
          metadata=ocp.args.JsonRestore(), **arguments)), None
    # orbax raises the bare class where an array's file is cut or gone; its
    # subclasses (out of memory, an interrupted device) are not damage.
    except Exception as error:  # pylint: disable=broad-exception-caught
      if type(error) is Exception or isinstance(
          error, (OSError, ValueError, KeyError)):
        return None, _first_line(error.__cause__ or error)
      raise

  def _set_aside(self, damage):
    # Called only once an older checkpoint was read with the same request, so
    # a mistake in the request can never rename a good one.
    for step, reason in damage.items():
      _log.warning(
          'Checkpoint %d in %s is damaged and was passed over: %s',
          step, self._directory, reason)
      if not self._read_only and jax.process_index() == 0:
        target = self._directory / f'{step}.damaged'
        shutil.rmtree(target, ignore_errors=True)
        (self._directory / str(step)).rename(target)
    if damage:
      ocp.multihost.sync_global_processes('rlclip:set_aside')
      self._manager.reload()


def _check_same(wanted, stored, where):
  """Raises ValueError at the first leaf where two trees differ."""
  wanted, stored = _leaves(wanted), _leaves(stored)
  for name, leaf in wanted.items():
    if name not in stored:
      raise ValueError(
          f'{where} has no array {name}; the model and optimizer of this '
          'config have one. Continue with the config the checkpoint was '
          'saved under.')
    was = stored[name]
    asked = tuple(leaf.shape), np.dtype(leaf.dtype)
    found = tuple(was.shape), np.dtype(was.dtype)
    if asked != found:
      raise ValueError(
          f'{where}: array {name} is {_describe(*found)}, expected '
          f'{_describe(*asked)}. Continue with the config the checkpoint was '
          'saved under.')
    if getattr(leaf, 'sharding', None) is not None:
      leaf.sharding.shard_shape(asked[0])  # raises where the mesh cannot cut it
  extra = next((name for name in stored if name not in wanted), None)
  if extra is not None:
    raise ValueError(
        f'{where} has an array {extra} that the model and optimizer of this '
        'config lack. Continue with the config the checkpoint was saved '
        'under.')


def _leaves(tree):
  """{'a/b/0': leaf}; a NamedTuple and the dict orbax makes of it agree."""
  flat, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {jax.tree_util.keystr(path, simple=True, separator='/'): leaf
          for path, leaf in flat}


def _describe(shape, dtype):
  return f'{dtype}{list(shape)}'


def _first_line(error):
  text = str(error).strip().splitlines()
  return f'{type(error).__name__}: {text[0][:300] if text else ""}'


def _without_params(state: types.TrainState) -> dict[str, Any]:
  """What only training needs: step, optimizer state, factors of the dials."""
  return {name: value for name, value in state._asdict().items()
          if name != 'params'}
