"""Reads JSON lines, and says which line is wrong."""
import hashlib
import json
import os
from typing import Any, Iterator, Sequence


def rows(
    path: str | os.PathLike, *, required: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
  """Yields the objects of a JSON-lines file; blank lines are skipped.

  Args:
    path: of a UTF-8 file.
    required: fields that every row must have.

  Raises:
    ValueError: a line that is no JSON object or no UTF-8, or lacks a field;
      it names file and line.
  """
  with open(path, 'rb') as lines:
    for number, line in enumerate(lines, start=1):
      if not line.strip():
        continue
      place = f'{os.fspath(path)}, line {number}'
      try:
        row = json.loads(line.decode('utf-8'))
      except ValueError as error:  # of JSON or of UTF-8
        raise ValueError(
            f'Expected a JSON object in {place}, got {line[:60]!r}: {error}. '
            'Mend or remove the line.') from error
      if not isinstance(row, dict):
        raise ValueError(
            f'Expected a JSON object in {place}, got {type(row).__name__}. '
            'Mend or remove the line.')
      missing = [name for name in required if name not in row]
      if missing:
        raise ValueError(
            f'Expected the fields {missing} in {place}, got only '
            f'{sorted(row)}. Mend the line or name the columns that hold them.')
      yield row


def content_hash(paths: Sequence[str | os.PathLike]) -> str:
  """A hash of the names and contents of files: 16 hexadecimal digits."""
  digest = hashlib.sha256()
  for path in sorted(map(os.fspath, paths)):
    digest.update(os.path.basename(path).encode() + b'\0')
    with open(path, 'rb') as file:
      digest.update(hashlib.file_digest(file, 'sha256').digest())
  return digest.hexdigest()[:16]
