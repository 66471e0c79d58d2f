"""Rows of files as examples with random access, prepared once through tfds."""
import contextlib
import dataclasses
import fcntl
import functools
import io
import json
import os
from typing import Any, Callable, Iterator, Mapping, Sequence

from rlclip.data import tables, tasks

_VERSION = 3  # of what is prepared; another one prepares anew


@dataclasses.dataclass(frozen=True)
class Layout:
  """Which columns of a row are an example's.

  Attributes:
    problem: the column with the problem's text.
    answer: the column with the right answer.
    id: the column with a name that no other row has; empty numbers the rows.
    adapt: a module's function `(row, split) -> row` that is applied first, and
      gives None for a row that is not of the split; None takes rows as they
      are. Its columns are the ones named above.
    required: columns that `adapt` reads.
  """
  problem: str = 'problem'
  answer: str = 'answer'
  id: str = 'id'
  adapt: Callable[[tables.Row, str], tables.Row | None] | None = None
  required: tuple[str, ...] = ()


def examples(
    name: str, split: str, paths: Sequence[str], layout: Layout, *,
    keep: Mapping[str, Any] | None = None, cache_dir: str = ''
) -> Sequence[tasks.Example]:
  """Examples of a split out of array_record files, which are made if absent.

  They are kept under the hash of the files' content: changed data is prepared
  anew. tfds writes to a folder of its own and renames it, and a lock keeps a
  second process from preparing the same.

  Args:
    name: of the set.
    split: of the set.
    paths: of its files.
    layout: of their rows.
    keep: from columns to the values wanted, one or several; rows with others
      are left out.
    cache_dir: for prepared data; empty takes RLCLIP_CACHE, or ~/.cache/rlclip.

  Returns:
    Examples in the order of the files: 'id', 'problem' and 'answer' as text,
    and a row's further columns.

  Raises:
    ValueError: a bad row, or none that is kept.
  """
  wanted = tuple(sorted(
      (column, tuple(v) if isinstance(v, (list, tuple)) else (v,))
      for column, v in (keep or {}).items()))
  root = cache_dir or os.environ.get('RLCLIP_CACHE') or '~/.cache/rlclip'
  return _prepared(name, split, tuple(paths), layout, wanted,
                   os.path.abspath(os.path.expanduser(root)))


@functools.lru_cache(maxsize=64)
def _prepared(name, split, paths, layout, keep, cache):
  # tfds takes half a second to import; generated tasks do without it.
  from rlclip.data.problem_rows import problem_rows_dataset_builder as builder
  adapt = layout.adapt and f'{layout.adapt.__module__}.{layout.adapt.__name__}'
  key = tables.content_hash(
      paths, _VERSION, dataclasses.replace(layout, adapt=adapt), keep)
  root = os.path.join(cache, 'data', f'{name}-{split}-{key}')
  os.makedirs(root, exist_ok=True)
  rows = _examples(name, split, paths, layout, keep)
  make = lambda: builder.Builder(
      split=split, examples=rows, data_dir=root, file_format='array_record')
  with open(os.path.join(root, 'lock'), 'w') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    with contextlib.redirect_stdout(io.StringIO()):  # tfds prints its progress
      builder.prepare(make())
  source = make().as_data_source(split=split)
  return tasks.Examples(
      len(source), lambda i: _unpacked(source[i]),
      lambda indices: map(_unpacked, source.__getitems__(indices)))


def _examples(name, split, paths, layout, keep) -> Iterator[tasks.Example]:
  """Reads, adapts, filters and checks the rows."""
  columns = [layout.problem, layout.answer, *([layout.id] * bool(layout.id))]
  required = layout.required if layout.adapt else columns
  ids, seen, num_rows = {}, {column: set() for column, _ in keep}, 0
  for path in paths:
    for place, row in tables.rows(path, required=required):
      if layout.adapt:
        row = layout.adapt(row, split)
        if row is None:
          continue
      num_rows += 1
      if not _is_kept(row, keep, seen, place):
        continue
      placed = tables.Placed(place, row)
      example = {k: v for k, v in row.items() if k not in columns}
      example['id'] = (tables.text(placed, layout.id) if layout.id
                       else f'{name}-{split}-{num_rows - 1}')
      example['problem'] = tables.text(placed, layout.problem)
      example['answer'] = tables.text(placed, layout.answer)
      first = ids.setdefault(example['id'], place)
      if first != place:
        raise ValueError(
            f'Expected another id than {example["id"]!r} in {place}: {first} '
            'has it. Name another column for ids, or none to number the rows.')
      yield example
  if not ids:
    values = {column: sorted(map(repr, some))[:20]
              for column, some in seen.items()}
    raise ValueError(
        f'Expected at least one row for the split {split!r} in '
        f'{", ".join(paths)}, got an empty data set: {num_rows} rows, none of '
        f'which keep={dict(keep)} leaves. The columns hold {values}.' if keep
        else f'Expected at least one row for the split {split!r} in '
        f'{", ".join(paths)}, got an empty file. Fetch the data again.')


def _is_kept(row, keep, seen, place) -> bool:
  """Whether a row has the values wanted; notes those it has."""
  for column, values in keep:
    if column not in row:
      raise ValueError(
          f'Expected the column {column!r}, which keep names, in {place}, got '
          f'only {sorted(row)}.')
    if len(seen[column]) < 20:
      seen[column].add(str(row[column]))
  return all(row[column] in values for column, values in keep)


def _unpacked(record) -> tasks.Example:
  """Undoes the builder's packing."""
  text = {key: value.decode('utf-8') for key, value in record.items()}
  extra = json.loads(text.pop('extra'))
  return {**extra, **text}
