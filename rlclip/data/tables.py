"""Reads rows of JSON-lines, JSON and parquet files, and says which is wrong."""
import gzip
import hashlib
import json
import os
from typing import Any, Iterator, NamedTuple, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]


class Placed(NamedTuple):
  """A row and where it stands, for messages: 'train.jsonl, line 7'."""
  place: str
  row: Row


def rows(
    path: str | os.PathLike, *, required: Sequence[str] = ()
) -> Iterator[Placed]:
  """Yields the rows of a file; its name says which kind it is.

  Args:
    path: of a .jsonl file (UTF-8, one object a line, blank lines skipped), of
      .jsonl.gz, of .json (an array of objects) or .parquet.
    required: columns that every row must have.

  Raises:
    ValueError: another kind of file, a damaged one, or a row that is no JSON
      object or no UTF-8, or lacks a column; it names file and row.
  """
  name = os.fspath(path)
  for ending, read in _READERS.items():
    if name.endswith(ending):
      break
  else:
    raise ValueError(
        f'Expected a file whose name ends in one of {list(_READERS)}, got '
        f'{name}.')
  for place, row in read(name):
    if not isinstance(row, dict):
      raise ValueError(
          f'Expected a JSON object in {place}, got {type(row).__name__}. '
          'Mend or remove it.')
    missing = [column for column in required if column not in row]
    if missing:
      raise ValueError(
          f'Expected the columns {missing} in {place}, got only '
          f'{sorted(row)}. Mend the row or name the columns that hold them.')
    yield Placed(place, row)


def text(placed: Placed, column: str) -> str:
  """A column's value as text; a number is written out.

  Raises:
    ValueError: a value that is neither text nor a number, or no Unicode.
  """
  value = placed.row[column]
  if isinstance(value, (int, float)) and not isinstance(value, bool):
    return str(value)
  if not isinstance(value, str):
    raise ValueError(
        f'Expected text or a number in column {column!r} of {placed.place}, '
        f'got {type(value).__name__}: {repr(value)[:60]}. Mend the row or name '
        'another column.')
  try:
    value.encode('utf-8')
  except UnicodeEncodeError as error:  # "\ud800" is JSON, but no character
    raise ValueError(
        f'Expected Unicode text in column {column!r} of {placed.place}: '
        f'{error}. Mend or remove the row.') from error
  return value


def content_hash(paths: Sequence[str | os.PathLike], *also: object) -> str:
  """A hash of files' names and contents, and of what else has a `repr`.

  Returns:
    16 hexadecimal digits.
  """
  digest = hashlib.sha256(repr(also).encode() if also else b'')
  for path in sorted(map(os.fspath, paths)):
    digest.update(os.path.basename(path).encode() + b'\0')
    with open(path, 'rb') as file:
      digest.update(hashlib.file_digest(file, 'sha256').digest())
  return digest.hexdigest()[:16]


def _json_lines(path: str, opened=open) -> Iterator[tuple[str, Any]]:
  with opened(path, 'rb') as lines:
    for number, line in enumerate(lines, start=1):
      if line.strip():
        place = f'{path}, line {number}'
        yield place, _parse(line, place)


def _compressed(path: str) -> Iterator[tuple[str, Any]]:
  try:
    yield from _json_lines(path, gzip.open)
  except (EOFError, gzip.BadGzipFile) as error:
    raise ValueError(
        f'Expected a whole gzip file in {path}: {error}. Fetch it again.'
    ) from error


def _json_array(path: str) -> Iterator[tuple[str, Any]]:
  with open(path, 'rb') as file:
    parsed = _parse(file.read(), path)
  if not isinstance(parsed, list):
    raise ValueError(
        f'Expected a JSON array of objects in {path}, got '
        f'{type(parsed).__name__}. Use .jsonl for one object a line.')
  for number, row in enumerate(parsed, start=1):
    yield f'{path}, row {number}', row


def _parquet(path: str) -> Iterator[tuple[str, Any]]:
  number = 0
  try:
    with pq.ParquetFile(path) as file:
      for batch in file.iter_batches(1024):
        for row in batch.to_pylist():
          number += 1
          yield f'{path}, row {number}', row
  except (pa.ArrowInvalid, UnicodeDecodeError) as error:
    raise ValueError(
        f'Expected a readable parquet file in {path}, got stuck behind row '
        f'{number}: {error}. Mend it or fetch it again.') from error


def _parse(data: bytes, place: str) -> Any:
  try:
    return json.loads(data.decode('utf-8'))
  except (ValueError, RecursionError) as error:  # of JSON or of UTF-8
    raise ValueError(
        f'Expected a JSON object in {place}, got {data[:60]!r}: {error}. Mend '
        'or remove it.') from error


_READERS = {
    '.jsonl': _json_lines, '.jsonl.gz': _compressed, '.json': _json_array,
    '.parquet': _parquet}
