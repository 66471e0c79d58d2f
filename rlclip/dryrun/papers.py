"""The table of the published experiments, made row by row and resumable."""
import json
import pathlib
from typing import Any, Mapping, NamedTuple, Protocol, Sequence

from rlclip.dryrun import report, running

_HEAD = """# The published experiments on TPU slices

Made by `python -m experiments.dryrun --papers=configs/papers/slices.py`. The
learner's and the sampler's own functions were compiled for each slice from
shapes alone, no chip attached. GiB are the compiler's, of the phase that takes
most, with what lies beside it. Seconds are rooflines, bounds from below, for
completions of full length and with the chips' published figures. Rules of
one model and context that are not listed differ from the listed one by
elementwise work alone. Slices, meshes, micro-batches and slots are ours.

| config | slice | GiB a device, of | verdict | s a step | of these decode, \
update | bound by | MFU of an update |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


class Row(Protocol):
  """What is compiled for where; see configs/papers/slices.py."""
  name: str
  config: Any
  topology: str


class _Entry(NamedTuple):
  row: Row
  found: Mapping[str, Any] | None  # a report as it was written; None if not run


def write(rows: Sequence[Row], output: pathlib.Path, *,
          models: str | None = None, only: Sequence[str] = ()) -> None:
  """Compiles rows that have no report yet, one by one, and writes the table.

  Reports lie beside the table, in a folder of its name, so that a call that
  was interrupted goes on; to make a row anew, remove its file. What is
  compiled of a row is kept, too, until the row is done.

  Args:
    rows: in the order in which they are compiled.
    output: the Markdown file.
    models: a folder of <org>__<name>.json; None reads config.model.path.
    only: parts of the names of rows to compile now; empty takes all.
  """
  folder = output.with_suffix('')
  folder.mkdir(parents=True, exist_ok=True)
  for row in rows:
    path = _path(folder, row)
    wanted = not only or any(part in row.name for part in only)
    if not path.exists() and wanted:
      made = running.run(
          row.config, row.topology, name=row.name,
          config_json=_model(models, row.config),
          part=path.with_suffix('.part.json'))
      report.show(made)
      path.write_text(
          json.dumps(report.as_dict(made), indent=1) + '\n', encoding='utf-8')
      path.with_suffix('.part.json').unlink(missing_ok=True)
    output.write_text(table([_entry(folder, r) for r in rows]),
                      encoding='utf-8')


def table(entries: Sequence[_Entry]) -> str:
  """The Markdown page of reports, and of rows that have none."""
  lines = [_HEAD]
  for row, found in entries:
    if found is not None:
      lines.append(_line(found))
  left = [f'- `{row.name}` on {row.topology}' for row, found in entries
          if found is None]
  if left:
    lines += ['', 'Not run yet:', '', *left]
  return '\n'.join(lines) + '\n'


def _line(found) -> str:
  gib = lambda size: f'{size / 2 ** 30:.1f}'
  phases = {line['name']: line for line in found['lines']}
  seconds = lambda name: phases[name]['calls'] * phases[name]['seconds']
  longest = max(phases, key=seconds)
  cells = (
      f'`{found["config"]}`', found['slice'],
      f'{gib(found["peak"])} of {gib(found["hbm"])}',
      'fits' if found['fits'] else 'does not fit',
      f'{found["step_seconds"]:,.0f}',
      f'{seconds("decode"):,.0f}, {seconds("update"):,.0f}',
      f'{longest}: {phases[longest]["bound"]}', f'{found["update_mfu"]:.0%}')
  return f'| {" | ".join(cells)} |'


def _entry(folder, row) -> _Entry:
  path = _path(folder, row)
  return _Entry(row, json.loads(path.read_text(encoding='utf-8'))
                if path.exists() else None)


def _path(folder, row) -> pathlib.Path:
  name = row.name.rpartition('/')[2]
  for old, new in ((',', '-'), (':', '-'), ('.py', '')):
    name = name.replace(old, new)
  return folder / f'{name}.json'


def _model(folder, config) -> pathlib.Path | None:
  if folder is None:
    return None
  return pathlib.Path(folder) / f'{config.model.path.replace("/", "__")}.json'
