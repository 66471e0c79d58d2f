"""Rollouts not yet trained on, kept beside the checkpoint that needs them.

`<directory>/<step>.npz` are the rollouts of a step: what was drawn and what it
earned, bit by bit. Prompts, texts and penalties follow from these and are made
again. A checkpoint after step n needs the files of the steps that had been
sampled ahead of it, with weights older than its own.
"""
import io
import os
import pathlib
from typing import Callable, Iterable, NamedTuple, Sequence
import zipfile

import numpy as np

from rlclip import rollouts, workdir
from rlclip.types import Completion, Prompt, SamplingSpec

_COUNTS = ('num_timeouts', 'num_errors', 'num_prompts', 'num_refills')
_NONE = -1  # of num_prompts


class Recipe(NamedTuple):
  """How a run makes what a file does not hold.

  Attributes:
    prompts_at: (place, count) -> the prompts from a place on.
    decode: ids -> text.
    spec: how completions were drawn.
    penalty: see `rollouts.collect`.
  """
  prompts_at: Callable[[int, int], Sequence[Prompt]]
  decode: Callable[[np.ndarray], str]
  spec: SamplingSpec
  penalty: Callable[[np.ndarray], np.ndarray] | None = None


def save(directory: str | os.PathLike, step: int, place: int,
         pending: Sequence[rollouts.Collected]) -> list[int]:
  """Writes what a checkpoint about to be saved needs, where it is not there.

  Args:
    directory: of the files; made on first use.
    step: the checkpoint's.
    place: of the first prompt of the step after it.
    pending: rollouts of the steps that follow.

  Returns:
    Their steps, for the checkpoint's metadata.

  Raises:
    OSError: the disk is full.
  """
  steps = list(range(step + 1, step + 1 + len(pending)))
  for at, collected in zip(steps, pending):
    path = _path(directory, at)
    if not path.exists():
      buffer = io.BytesIO()
      np.savez(buffer, **_arrays(collected, place))
      workdir.write_atomically(path, buffer.getvalue())
    place += len(collected.groups)
  return steps


def keep(directory: str | os.PathLike, steps: Iterable[int]) -> None:
  """Removes the files of all other steps."""
  kept = {_path(directory, step) for step in steps}
  for path in pathlib.Path(directory).glob('*.npz'):
    if path not in kept:
      path.unlink()


def restore(directory: str | os.PathLike, steps: Sequence[int],
            recipe: Recipe) -> list[rollouts.Collected]:
  """The rollouts that `save` wrote.

  Args:
    directory: of the files.
    steps: as `save` returned them for a checkpoint.
    recipe: of the run.

  Raises:
    ValueError: a file that is not there or cannot be read.
  """
  found = []
  for step in steps:
    path = _path(directory, step)
    try:
      with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
      raise ValueError(
          f'Expected the rollouts of step {step} at {path}, which its '
          f'checkpoint needs, but they cannot be read: {error}. Restore the '
          f'file from a copy, or remove the newest checkpoint, so that the run '
          f'goes on from an older one.') from error
    found.append(_collected(arrays, recipe))
  return found


def _path(directory, step) -> pathlib.Path:
  return pathlib.Path(directory) / f'{step:08d}.npz'


def _arrays(collected, place):
  """What numpy takes without pickling: numbers and fixed-width strings."""
  rows = [c for group in collected.groups for c in group.completions]
  scores = [by for group in collected.groups for by in group.by_function]
  names = list(scores[0])
  counts = [getattr(collected, name) for name in _COUNTS]
  return {
      'place': np.int64(place),
      'first_id': np.int64(collected.groups[0].requests[0].id),
      'counts': np.array([_NONE if c is None else c for c in counts], np.int64),
      'tokens': np.concatenate([c.tokens for c in rows]).astype(np.int32),
      'logps': np.concatenate([c.logps for c in rows]).astype(np.float32),
      'lengths': np.array([len(c.tokens) for c in rows], np.int64),
      'finishes': np.array([c.finish for c in rows]),
      'versions': np.array([c.version for c in rows], np.int64),
      'rewards': collected.rewards,
      'functions': np.array(names, np.str_),
      'by_function': np.array(
          [[np.nan if by[name] is None else by[name] for by in scores]
           for name in names], np.float64)}


def _collected(arrays, recipe):
  num_prompts, group_size = arrays['rewards'].shape
  prompts = recipe.prompts_at(int(arrays['place']), num_prompts)
  ends = np.cumsum(arrays['lengths'])[:-1]
  completions = [
      Completion(tokens, logps, str(finish), int(version))
      for tokens, logps, finish, version in zip(
          np.split(arrays['tokens'], ends), np.split(arrays['logps'], ends),
          arrays['finishes'], arrays['versions'], strict=True)]
  names = [str(name) for name in arrays['functions']]
  scores = [
      {name: None if np.isnan(value) else float(value)
       for name, value in zip(names, column, strict=True)}
      for column in arrays['by_function'].T]
  counts = dict(zip(_COUNTS, map(int, arrays['counts']), strict=True))
  if counts['num_prompts'] == _NONE:
    counts['num_prompts'] = None
  groups = rollouts.make_groups(
      prompts,
      rollouts.make_requests(prompts, recipe.spec, group_size=group_size,
                             first_id=int(arrays['first_id'])),
      completions, [recipe.decode(c.tokens) for c in completions],
      arrays['rewards'].reshape(-1), scores, recipe.penalty)
  return rollouts.Collected(groups, **counts)
