"""Draws runs: python -m experiments.curves --output=C.png DIR [DIR ...]."""
import pathlib
import sys

from absl import app, flags

_OUTPUT = flags.DEFINE_string('output', None, 'The PNG to write.')
_TASK = flags.DEFINE_string('task', 'arithmetic', 'Whose pass@1 to draw.')
flags.mark_flag_as_required('output')


def main(argv):
  if len(argv) < 2:
    raise app.UsageError('Give the folders of one or more runs.')
  from rlclip import workdir
  from rlclip.analysis import curves
  folders = [workdir.RunFolder(pathlib.Path(name)) for name in argv[1:]]
  try:
    for folder in folders:
      print(f'{folder.path.name}\n')
      print(curves.table(curves.evaluations(folder, _TASK.value)) + '\n')
    curves.draw(folders, _TASK.value, _OUTPUT.value)
  except (ValueError, OSError) as error:
    sys.exit(f'{type(error).__name__}: {error}')


if __name__ == '__main__':
  app.run(main)
