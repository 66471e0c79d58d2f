"""The table of the published experiments, made row by row and resumable."""
import json
import pathlib
from typing import Any, Mapping, Protocol, Sequence

from rlclip.dryrun import report, running

_HEAD = """# The published experiments on TPU slices

Made by `python -m experiments.dryrun --papers=configs/papers/slices.py`. The
learner's and the sampler's own functions were compiled for each slice from
shapes alone, no chip attached. GiB are the compiler's, of the phase that takes
most, with what lies beside it. Seconds are rooflines, bounds from below, for
completions of full length and with the chips' published figures. Rules of
one model and context that are not listed differ from the listed one by
elementwise work alone. Slices, meshes, micro-batches and slots are ours.
"""

_COLUMNS = (
    '| config | slice | GiB a device, of | verdict | s a step | of these '
    'decode, update | bound by | MFU of an update |',
    '| --- | --- | --- | --- | --- | --- | --- | --- |')

_LEFT = """## Not compiled yet: by arithmetic alone

The same columns, estimated, as `--analysis_only` does.
"""


class Row(Protocol):
  """What is compiled for where; see configs/papers/slices.py."""
  name: str
  config: Any
  topology: str


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
  run = lambda row, **how: running.run(
      row.config, row.topology, name=row.name,
      config_json=_model(models, row.config), **how)
  estimates = [report.as_dict(run(row, analysis_only=True)) for row in rows]

  def reports():
    paths = [_path(folder, row) for row in rows]
    return [json.loads(path.read_text(encoding='utf-8')) if path.exists()
            else estimate for path, estimate in zip(paths, estimates)]

  output.write_text(table(reports()), encoding='utf-8')
  for row in rows:
    path = _path(folder, row)
    wanted = not only or any(part in row.name for part in only)
    if path.exists() or not wanted:
      continue
    part = path.with_suffix('.part.json')
    made = run(row, part=part)
    report.show(made)
    path.write_text(
        json.dumps(report.as_dict(made), indent=1) + '\n', encoding='utf-8')
    part.unlink(missing_ok=True)
    output.write_text(table(reports()), encoding='utf-8')


def table(reports: Sequence[Mapping[str, Any]]) -> str:
  """The Markdown page; rows that were not compiled stand apart."""
  done = [_line(found) for found in reports if not found['analysis_only']]
  left = [_line(found) for found in reports if found['analysis_only']]
  lines = [_HEAD, *_COLUMNS, *done]
  if left:
    lines += ['', _LEFT, *_COLUMNS, *left]
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


def _path(folder, row) -> pathlib.Path:
  name = row.name.rpartition('/')[2]
  for old, new in ((',', '-'), (':', '-'), ('.py', '')):
    name = name.replace(old, new)
  return folder / f'{name}.json'


def _model(folder, config) -> pathlib.Path | None:
  if folder is None:
    return None
  return pathlib.Path(folder) / f'{config.model.path.replace("/", "__")}.json'
