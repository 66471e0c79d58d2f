"""From a problem set's description and a task's options to its examples."""
import dataclasses
from typing import Any, Callable, Mapping, Sequence

from rlclip.data import prepared, sources, tasks

_COLUMNS = ('problem', 'answer', 'id')


@dataclasses.dataclass(frozen=True)
class Home:
  """Where a set is kept on the hub, and how its rows look there.

  Attributes:
    hub: 'org/name'.
    files: from splits to names or patterns of files.
    layout: of their rows.
  """
  hub: str
  files: Mapping[str, sources.Files]
  layout: prepared.Layout


@dataclasses.dataclass(frozen=True)
class ProblemSet:
  """A set of problems in files.

  Attributes:
    name: of the set.
    folder: its folder in the data folder; empty for that itself.
    files: from splits to names or patterns of files in the folder.
    layout: of their rows.
    home: of the set on the hub; None where no place is known.
  """
  name: str
  folder: str
  files: Mapping[str, sources.Files]
  layout: prepared.Layout = prepared.Layout()
  home: Home | None = None


def load(
    problems: ProblemSet, *, data_dir: str = '', hub: str = '',
    files: Mapping[str, sources.Files] | None = None,
    columns: Mapping[str, str] | None = None,
    keep: Mapping[str, Any] | None = None, cache_dir: str = ''
) -> tuple[tuple[str, ...], Callable[[str], Sequence[tasks.Example]]]:
  """The splits of a set, and a function from a split to its examples.

  Args:
    problems: the set.
    data_dir: holds the sets' folders; empty takes RLCLIP_DATA.
    hub: a data set on the hub in place of a folder: 'home' for the set's own,
      'org/name' or 'org/name@revision' for another.
    files: from splits to names or patterns; None for the set's own.
    columns: from 'problem', 'answer' and 'id' to other columns; an empty id
      numbers the rows.
    keep: see `prepared.examples`.
    cache_dir: see `prepared.examples`.

  Raises:
    ValueError: options that name no column, set, folder or file.
  """
  own, layout = problems.files, problems.layout
  if hub == 'home':
    if problems.home is None:
      raise ValueError(
          f'Expected hub=\'org/name\' for task {problems.name!r}, got '
          '\'home\': no place on the hub is known.')
    hub, own = problems.home.hub, problems.home.files
    layout = problems.home.layout
  elif hub and not files:
    raise ValueError(
        f'Expected files with hub={hub!r}, such as {{\'train\': '
        '\'data/train-*.parquet\'}, got none.')
  layout = _renamed(layout, columns or {})
  chosen = dict(files or own)
  if not chosen:
    raise ValueError(
        f'Expected files for task {problems.name!r}, such as {{\'train\': '
        '\'train.jsonl\'}, got none.')
  folder = '' if hub else sources.local(
      problems.name, problems.folder, data_dir, chosen)

  def examples(split: str) -> Sequence[tasks.Example]:
    tasks.check_split(problems.name, split, tuple(chosen))
    where = sources.fetch(hub, chosen[split]) if hub else folder
    paths = sources.find(problems.name, split, where, chosen[split])
    return prepared.examples(
        problems.name, split, paths, layout, keep=keep, cache_dir=cache_dir)

  return tuple(chosen), examples


def _renamed(layout, columns) -> prepared.Layout:
  unknown = sorted(set(columns) - set(_COLUMNS))
  if unknown:
    raise ValueError(
        f'Expected columns for {list(_COLUMNS)}, got {unknown} too.')
  # Whoever names columns names those of the files, not of what adapt makes.
  return dataclasses.replace(
      layout, **columns, **({'adapt': None} if columns else {}))
