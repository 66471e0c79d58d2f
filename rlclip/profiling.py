"""A profile of a few steps of a run, for xprof or Perfetto."""
import contextlib
import logging
import pathlib
from typing import Iterator

import jax

_log = logging.getLogger(__name__)


class Window:
  """Records the steps first .. first + num_steps - 1.

  The profiler's own cost is in these steps' times. The steps appear under
  their numbers, the phases under their names.
  """

  def __init__(self, folder: pathlib.Path, first: int, num_steps: int):
    """Records nothing yet; `num_steps` 0 never does."""
    self._folder, self._steps = folder, range(first, first + num_steps)
    self._stack, self._is_open = contextlib.ExitStack(), False

  @contextlib.contextmanager
  def step(self, number: int) -> Iterator[None]:
    """Around one step of the run."""
    if number in self._steps and not self._is_open:
      self._stack.enter_context(jax.profiler.trace(str(self._folder)))
      self._is_open = True
    with jax.profiler.StepTraceAnnotation('step', step_num=number):
      yield
    if self._is_open and number + 1 not in self._steps:
      self.close()

  def close(self) -> None:
    """Writes what is recorded; of use where a run ends within the window."""
    if self._is_open:
      self._is_open = False
      self._stack.close()
      _log.info('Profile in %s: see it with xprof.', self._folder)
