"""A run's folder on disk: its paths, its lock, its config, its log.

  config.json versions.json metrics.jsonl log.txt report.html tb/
  checkpoints/<step>/  rollouts/<step>.parquet  eval/<task>/<step>.jsonl
"""
import contextlib
import dataclasses
import datetime
import errno
import fcntl
import fnmatch
import importlib.metadata
import json
import logging
import os
import pathlib
import platform
import socket
import sys
import tempfile
import time
from typing import Any, Iterator, Mapping, Sequence

# Keys in which a resumed run may differ from the run it continues: where and
# how long it runs and what it shows, but not what a step computes. `mesh.*`,
# `model.attention`, `model.remat` and `learner.packing` keep the mathematics
# and change the order of sums.
MAY_DIFFER = (
    'num_steps', 'mesh.*', 'distributed.*', 'evaluation.*', 'checkpoint.*',
    'logging.*', 'model.attention', 'model.remat', 'reward.num_workers',
    'rollout.num_slots',
    'rollout.prompt_length', 'rollout.steps_per_round', 'task.data_dir',
    'learner.logits_chunk', 'learner.packing', 'sampler.urls',
    'sampler.weights_folder', 'sampler.in_flight', 'sampler.timeout',
    'sampler.reload_timeout', 'sampler.retries', 'sampler.patience')

_PACKAGES = (
    'rlclip', 'jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy',
    'transformers', 'tokenizers', 'math-verify')
_DISK_ERRORS = {
    errno.ENOSPC: 'the disk is full',
    errno.EDQUOT: 'the disk quota is used up',
    errno.EFBIG: 'the file is larger than the limit (ulimit -f) allows'}
_SEEN_SECONDS = 60.0  # network file systems keep lists of files for so long
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RunFolder:
  """The names inside a run's folder. Holds no state."""
  path: pathlib.Path

  @property
  def config(self) -> pathlib.Path:
    return self.path / 'config.json'

  @property
  def versions(self) -> pathlib.Path:
    return self.path / 'versions.json'

  @property
  def metrics(self) -> pathlib.Path:
    return self.path / 'metrics.jsonl'

  @property
  def tensorboard(self) -> pathlib.Path:
    return self.path / 'tb'

  @property
  def checkpoints(self) -> pathlib.Path:
    return self.path / 'checkpoints'

  @property
  def rollouts(self) -> pathlib.Path:
    return self.path / 'rollouts'

  @property
  def report(self) -> pathlib.Path:
    return self.path / 'report.html'

  @property
  def log(self) -> pathlib.Path:
    return self.path / 'log.txt'

  @property
  def lock(self) -> pathlib.Path:
    return self.path / '.lock'

  def evaluation(self, task: str, step: int) -> pathlib.Path:
    return self.path / 'eval' / task / f'{step}.jsonl'


@contextlib.contextmanager
def open_run(
    path: str | os.PathLike, config: Mapping[str, Any], *,
    may_differ: Sequence[str] = MAY_DIFFER,
    is_primary: bool = True) -> Iterator[RunFolder]:
  """Opens a new run's folder, or an earlier run's to continue it.

  Takes the lock, writes config.json and versions.json where they are missing,
  and copies the log to log.txt until the end of the `with` block, the
  traceback that ended it among it.

  Args:
    path: the folder; created where it is missing.
    config: the resolved config, nested, JSON values only.
    may_differ: patterns of dotted keys in which a resumed run may differ;
      such a difference is logged and replaces the stored value.
    is_primary: False on the other processes of a multi-process run, which
      share the folder but neither lock it nor write here.

  Raises:
    BlockingIOError: if another process has the folder open.
    ValueError: if the folder's config differs in any other key.
    OSError: if the disk is full.
  """
  folder = RunFolder(pathlib.Path(path).absolute())
  if not is_primary:
    yield folder
    return
  with disk_errors(folder.path):
    folder.path.mkdir(parents=True, exist_ok=True)
  with lock(folder), _logging_to(folder.log):
    _keep_config(folder, config, may_differ)
    _keep_versions(folder)
    yield folder


def require_seen(folder: RunFolder) -> None:
  """Stops where the folder that process 0 has opened is not to be seen.

  Raises:
    ValueError: the folder is another machine's own.
  """
  begun = time.monotonic()
  while not folder.config.exists():  # network file systems may lag behind
    if time.monotonic() - begun > _SEEN_SECONDS:
      raise ValueError(
          f'Process 0 has opened {folder.path}, and this process does not see '
          f'{folder.config.name} there. Give a --workdir on a file system '
          f'that all machines share.')
    time.sleep(0.5)


@contextlib.contextmanager
def lock(folder: RunFolder) -> Iterator[None]:
  """Holds the folder for this process alone; the kernel frees it on any exit.

  Raises:
    BlockingIOError: if it is held; says by which process on which machine.
  """
  with open(folder.lock, 'a+', encoding='utf-8') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      file.seek(0)
      holder = file.read().strip() or 'another process'
      raise BlockingIOError(
          errno.EWOULDBLOCK,
          f'One process at a time may write to {folder.path}, and {holder} '
          'does. Wait for it, end it, or give another --workdir') from error
    # A forked worker shares the lock, and would hold it on if this process
    # were killed. It closes its copy, which leaves ours as it is.
    os.register_at_fork(after_in_child=file.close)
    file.truncate(0)
    file.write(f'process {os.getpid()} on {socket.gethostname()}')
    file.flush()
    yield


def write_atomically(path: pathlib.Path, content: str | bytes) -> None:
  """Writes a file whole or not at all, also through a kill or power loss.

  Raises:
    OSError: if the disk is full; an earlier file at `path` is kept.
  """
  data = content.encode() if isinstance(content, str) else content
  with disk_errors(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=f'.{path.name}.')
    try:
      with os.fdopen(handle, 'wb') as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
      # mkstemp makes files private; the others of the folder follow umask.
      umask = os.umask(0)
      os.umask(umask)
      os.chmod(temporary, 0o666 & ~umask)
      os.replace(temporary, path)
    except BaseException:
      with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
      raise


@contextlib.contextmanager
def disk_errors(path: str | os.PathLike, kept: str = '') -> Iterator[None]:
  """Says what to do where a write fails for want of space.

  Args:
    path: what is being written.
    kept: a sentence (and a space) on what is left whole, for the message.

  Raises:
    OSError: with the original errno (ENOSPC, EDQUOT, EFBIG), also where a
      library buried it in another error's text.
  """
  try:
    yield
  except (OSError, ValueError, RuntimeError) as error:
    code = _disk_error(error)
    if code is None:
      raise
    raise OSError(
        code, f'Cannot write {path}: {_DISK_ERRORS[code]}. {kept}Make room '
        'there and run the same command again; it continues from the last '
        'good checkpoint') from error


def next_folder(path: str | os.PathLike) -> pathlib.Path:
  """Returns the folder of an unfinished run at `path`, or a new one's.

  That is `path` itself or, once its run is finished, `path` with the date and
  time added; of several dated ones the newest counts. A run is finished when
  metrics.jsonl reaches the num_steps of config.json.
  """
  path = pathlib.Path(path)
  newest = max(path.parent.glob(f'{path.name}-2*'), default=path)
  if not _is_finished(RunFolder(newest)):
    return newest
  now = datetime.datetime.now().strftime('%Y%m%d-%H%M%S')
  return path.with_name(f'{path.name}-{now}')


def versions() -> dict[str, str]:
  """Returns the versions of Python, the machine and the packages that count."""
  return {'python': platform.python_version(), 'machine': platform.machine(),
          'system': platform.platform(), **packages()}


def packages() -> dict[str, str]:
  """Returns the versions of the packages that count."""
  found = {}
  for name in _PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      found[name] = importlib.metadata.version(name)
  return found


def flatten(config: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  """Returns {'a.b': 1} for {'a': {'b': 1}}; an empty mapping is a leaf."""
  leaves = {}
  for name, value in config.items():
    if isinstance(value, Mapping) and value:
      leaves.update(flatten(value, f'{prefix}{name}.'))
    else:
      leaves[f'{prefix}{name}'] = value
  return leaves


def _is_finished(folder):
  if not (folder.config.exists() and folder.metrics.exists()):
    return False
  lines = folder.metrics.read_bytes().splitlines()
  try:
    last = json.loads(lines[-1])['step']
  except (IndexError, ValueError):  # no line yet, or a torn one
    return False
  return last >= _read_config(folder.config)['num_steps']


def _keep_config(folder, config, may_differ):
  # Through JSON and back: tuples become lists, as in the stored file.
  text = json.dumps(config, indent=2, sort_keys=True, allow_nan=False)
  if folder.config.exists():
    new, old = flatten(json.loads(text)), flatten(_read_config(folder.config))
    missing = object()
    for key in sorted({*new, *old}):
      was, now = old.get(key, missing), new.get(key, missing)
      if was == now:
        continue
      change = f'{key} = {_show(now, missing)}, was {_show(was, missing)}'
      if not any(fnmatch.fnmatch(key, pattern) for pattern in may_differ):
        raise ValueError(
            f'{folder.path} holds a run whose config differs: {change}. A run '
            'continues with the config it began with. Set the key back, or '
            'give another --workdir.')
      _log.warning('The run continues with another config: %s.', change)
  write_atomically(folder.config, text + '\n')


def _read_config(path):
  try:
    return json.loads(path.read_text(encoding='utf-8'))
  except ValueError as error:
    raise ValueError(
        f'{path} is no JSON ({error}). Restore it, or give another '
        '--workdir.') from error


def _show(value, missing):
  return 'missing' if value is missing else repr(value)


def _keep_versions(folder):
  now = versions()
  if folder.versions.exists():
    was = json.loads(folder.versions.read_text(encoding='utf-8'))
    for name in sorted({*was, *now}):
      if was.get(name) != now.get(name):
        _log.warning(
            'The run continues with %s %s; it began with %s, and may no '
            'longer be bit-equal.', name, now.get(name), was.get(name))
  write_atomically(
      folder.versions, json.dumps(now, indent=2, sort_keys=True) + '\n')


class _CurrentStderr:
  """The sys.stderr of the moment: a progress bar puts its own in its place."""

  def write(self, text):
    sys.stderr.write(text)

  def flush(self):
    sys.stderr.flush()


@contextlib.contextmanager
def _logging_to(path):
  """Sends rlclip's log, and everyone's warnings, to `path` and stderr."""
  ours, root = logging.getLogger('rlclip'), logging.getLogger()
  layout = logging.Formatter(
      '%(asctime)s %(levelname)s %(name)s: %(message)s')
  with disk_errors(path):
    file = logging.FileHandler(path, encoding='utf-8')
  others = logging.FileHandler(path, encoding='utf-8')
  others.setLevel(logging.WARNING)
  screen = logging.StreamHandler(_CurrentStderr())
  handlers = [(ours, file), (ours, screen), (root, others)]
  before = ours.level, ours.propagate
  for logger, handler in handlers:
    handler.setFormatter(layout)
    logger.addHandler(handler)
  ours.setLevel(logging.INFO)
  # absl's handler at the root would print every line a second time.
  ours.propagate = False
  try:
    yield
  except BaseException as error:
    ours.removeHandler(screen)  # whoever ends the program prints it there
    if not (isinstance(error, SystemExit) and not error.code):
      ours.critical('The run ended early.', exc_info=error)
    raise
  finally:
    for logger, handler in handlers:
      logger.removeHandler(handler)
      handler.close()
    ours.level, ours.propagate = before


def _disk_error(error):
  """Returns ENOSPC, EDQUOT or EFBIG if `error` comes from one, else None."""
  while error is not None:
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
      return error.errno
    for code in _DISK_ERRORS:
      # So tensorstore reports it, inside a ValueError's text.
      if f"os_error_code='{code}'" in str(error):
        return code
    error = error.__cause__ or error.__context__
  return None


if __name__ == '__main__':  # for the Makefile: which folder to train in
  print(next_folder(sys.argv[1]))
