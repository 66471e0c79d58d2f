"""The bank of rollouts: one parquet file a step, for replay and inspection.

Columns, one row a completion, the rows of a prompt together:

  step           int64          of the run
  group          int32          which prompt of the step
  example_id     string         of the task
  request_id     int64          keys the draw
  weights        int64          version of the weights that sampled
  prompt_tokens  list<int32>
  tokens         list<int32>    stop token included
  text           string         decoded completion
  finish         string         stop, length or error
  behavior_logps list<float>    nats, of the distribution sampled from
  old_logps      list<float>    the learner's at the same weights; or null
  reward         float          null where it could not be scored
  rewards        map<string, float>   by reward function, before weighting;
                                `overlong`: the penalty added to the reward
  gold           string
  advantage      float          as used by the loss
  dropped        bool           left out of training with its group, which had
                                no signal; read as false where a file is older

The file's metadata has `rlclip.bank.version` and `rlclip.bank.run`, a JSON
object with what the run wants remembered (temperature, stop ids, ...).
"""
import json
import os
import re
import tempfile
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

VERSION = 1

SCHEMA = pa.schema([
    ('step', pa.int64()),
    ('group', pa.int32()),
    ('example_id', pa.string()),
    ('request_id', pa.int64()),
    ('weights', pa.int64()),
    ('prompt_tokens', pa.list_(pa.int32())),
    ('tokens', pa.list_(pa.int32())),
    ('text', pa.string()),
    ('finish', pa.string()),
    ('behavior_logps', pa.list_(pa.float32())),
    ('old_logps', pa.list_(pa.float32())),
    ('reward', pa.float32()),
    ('rewards', pa.map_(pa.string(), pa.float32())),
    ('gold', pa.string()),
    ('advantage', pa.float32()),
    ('dropped', pa.bool_()),
])


class Rollout(NamedTuple):
  """One row of the bank; see the file's docstring for units."""
  step: int
  group: int
  example_id: str
  request_id: int
  weights: int
  prompt_tokens: np.ndarray
  tokens: np.ndarray
  text: str
  finish: str
  behavior_logps: np.ndarray
  old_logps: np.ndarray | None
  reward: float | None
  rewards: Mapping[str, float | None]
  gold: str
  advantage: float
  dropped: bool = False


def file_name(step: int) -> str:
  """Name of a step's file; names sort as steps do."""
  return f'{step:08d}.parquet'


def write(
    path: str | os.PathLike, rollouts: Sequence[Rollout], *,
    run: Mapping[str, Any] | None = None) -> None:
  """Writes one step's rollouts, whole or not at all.

  Args:
    path: of the file, `<workdir>/rollouts/<file_name(step)>`. Its folder is
      made, a file already there is replaced.
    rollouts: rows.
    run: what to remember of the run, as JSON.

  Raises:
    OSError: the disk is full or the folder not writable; nothing is left over.
  """
  path = os.path.abspath(path)
  os.makedirs(os.path.dirname(path), exist_ok=True)
  schema = SCHEMA.with_metadata({
      'rlclip.bank.version': str(VERSION),
      'rlclip.bank.run': json.dumps(dict(run or {}), sort_keys=True)})
  columns = zip(*rollouts) if rollouts else [()] * len(SCHEMA)
  arrays = [
      pa.array([_plain(v) for v in values], field.type)
      for field, values in zip(schema, columns)]
  handle, temporary = tempfile.mkstemp(
      dir=os.path.dirname(path), prefix='.', suffix='.partial')
  os.close(handle)
  try:
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=schema), temporary,
        compression='zstd')
    os.chmod(temporary, 0o666 & ~_umask())
    os.replace(temporary, path)
  finally:
    if os.path.exists(temporary):
      os.remove(temporary)


def files(path: str | os.PathLike) -> list[str]:
  """The bank's files, by step. `path` is a file, or a folder of them.

  Raises:
    ValueError: nothing there.
  """
  if os.path.isfile(path):
    return [os.fspath(path)]
  names = os.listdir(path) if os.path.isdir(path) else []
  steps = sorted(n for n in names if re.fullmatch(r'\d+\.parquet', n))
  if not steps:
    raise ValueError(
        f'Expected a rollout bank (a folder of <step>.parquet, or one of its '
        f'files) at {path}, found none. Give <workdir>/rollouts.')
  return [os.path.join(path, n) for n in sorted(
      steps, key=lambda n: int(n.partition('.')[0]))]


def read(
    path: str | os.PathLike, *, columns: Sequence[str] | None = None
) -> pa.Table:
  """Reads a step's file, or all files of a folder in the order of steps.

  Args:
    path: a file or the `rollouts` folder.
    columns: names to read; None reads all.

  Returns:
    A pyarrow table. Its metadata is the first file's.

  Raises:
    ValueError: no bank there, a truncated or foreign file, another version.
  """
  return pa.concat_tables(
      [_read_file(name, columns) for name in files(path)])


def run_of(table: pa.Table) -> dict[str, Any]:
  """What `write` was told about the run."""
  return json.loads(table.schema.metadata[b'rlclip.bank.run'])


def _read_file(path: str, columns: Sequence[str] | None) -> pa.Table:
  wanted = SCHEMA.names if columns is None else list(columns)
  try:
    known = pq.read_schema(path).names
    table = pq.read_table(
        path, partitioning=None, columns=None if columns is None else [
            name for name in columns if name != 'dropped' or name in known])
  except (pa.ArrowInvalid, OSError) as error:
    raise ValueError(
        f'Expected a rollout bank file at {path}, but it cannot be read: '
        f'{error}. It is truncated or no parquet: delete it, or read the '
        'other steps.') from error
  version = (table.schema.metadata or {}).get(b'rlclip.bank.version', b'none')
  if version != str(VERSION).encode():
    raise ValueError(
        f'Expected rollout bank version {VERSION} in {path}, got '
        f'{version.decode()}. Read it with the rlclip that wrote it.')
  if 'dropped' in wanted and 'dropped' not in known:
    table = table.add_column(
        wanted.index('dropped'), SCHEMA.field('dropped'),
        pa.array([False] * table.num_rows, pa.bool_()))
  return table


def _plain(value):
  """Parquet maps are lists of pairs."""
  return list(value.items()) if isinstance(value, Mapping) else value


def _umask() -> int:
  mask = os.umask(0)
  os.umask(mask)
  return mask
