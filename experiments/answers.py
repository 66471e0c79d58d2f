"""Shows answers on disk: python -m experiments.answers --page=A.html DIR.

DIR is the --output of experiments.evaluate, or the eval/ of a run.
"""
import pathlib
import sys

from absl import app, flags

_PAGE = flags.DEFINE_string('page', None, 'HTML file to write.')
_MARKDOWN = flags.DEFINE_string(
    'markdown', None, 'Markdown file to write: measures and settings.')
_TITLE = flags.DEFINE_string('title', 'Evaluation', 'Of the Markdown file.')
_STEP = flags.DEFINE_integer(
    'step', None, 'Of the run; default the newest of each task.')


def main(argv):
  if len(argv) != 2:
    raise app.UsageError('Give one folder.')
  from rlclip import evaluate, progress, workdir
  from rlclip.analysis import evaluation
  try:
    results = evaluation.read(argv[1], _STEP.value)
    for result in results:
      progress.show_evaluation(result.task, evaluate.summary(result.answers))
    if _PAGE.value:
      workdir.write_atomically(
          pathlib.Path(_PAGE.value), evaluation.page_of(results))
    if _MARKDOWN.value:
      workdir.write_atomically(
          pathlib.Path(_MARKDOWN.value),
          f'# {_TITLE.value}\n\n{evaluation.markdown(results)}')
  except (ValueError, OSError) as error:
    sys.exit(f'{type(error).__name__}: {error}')


if __name__ == '__main__':
  app.run(main)
