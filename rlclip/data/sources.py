"""Where a problem set's files are: in a local folder, or on the hub."""
import glob
import os
from typing import Mapping, Sequence

Files = str | Sequence[str]


def local(
    task: str, folder: str, data_dir: str, files: Mapping[str, Files]) -> str:
  """The folder that holds a set's files.

  Args:
    task: who asks, for messages.
    folder: inside the data folder; empty takes that itself.
    data_dir: the data folder; empty takes RLCLIP_DATA.
    files: from splits to names or patterns, for messages.

  Raises:
    ValueError: no such folder; it says what to set, and what belongs there.
  """
  root = data_dir or os.environ.get('RLCLIP_DATA', '')
  names = dict.fromkeys(
      os.path.join(folder, name) for some in files.values()
      for name in ([some] if isinstance(some, str) else some))
  what = ' and '.join(names)
  if not root:
    raise ValueError(
        f'Task {task!r} needs the folder that holds {what}. Set the '
        'environment variable RLCLIP_DATA, or the task\'s option data_dir; or '
        'its option hub, to a data set on the hub.')
  path = os.path.abspath(os.path.join(os.path.expanduser(root), folder))
  if not os.path.isdir(path):
    raise ValueError(
        f'Expected the data of task {task!r} in {path}, found no such '
        'folder. Set RLCLIP_DATA, or the task\'s option data_dir, to the '
        f'folder that holds {what}.')
  return path


def fetch(hub: str, files: Files) -> str:
  """Fetches files of a data set on the hub, where they are not here already.

  Args:
    hub: 'org/name', or 'org/name@revision'.
    files: names or patterns, such as 'main/train-*.parquet'.

  Returns:
    The folder that holds them.

  Raises:
    ValueError: the hub cannot be reached, or has no such data set.
  """
  import huggingface_hub
  name, _, revision = hub.partition('@')
  patterns = [files] if isinstance(files, str) else list(files)
  try:
    return huggingface_hub.snapshot_download(
        name, repo_type='dataset', revision=revision or None,
        allow_patterns=patterns)
  except (OSError, ValueError) as error:
    raise ValueError(
        f'Expected a reachable data set on the hub, got {hub!r}: {error} '
        'Without a network, give a local folder as data_dir.') from error


def find(task: str, split: str, folder: str, files: Files) -> tuple[str, ...]:
  """The paths of a split's files, sorted pattern by pattern.

  Raises:
    ValueError: a name or pattern without a file.
  """
  patterns = [files] if isinstance(files, str) else files
  found = []
  for pattern in patterns:
    path = os.path.join(folder, pattern)
    matches = [path] if os.path.isfile(path) else sorted(
        glob.glob(path, recursive=True))
    if not matches:
      raise ValueError(
          f'Expected the split {split!r} of task {task!r} in {path}, found no '
          'such file. Set RLCLIP_DATA, or the task\'s option data_dir, to the '
          'folder that holds it.')
    found += matches
  return tuple(found)
