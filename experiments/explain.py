r"""Says what a rule does: an algorithm, or anything on an axis.

python -m experiments.explain atr_grpo
python -m experiments.explain 'alpha(order=0.25)' --plot=alpha.png
python -m experiments.explain gate:none         where several kinds have a name
python -m experiments.explain                   lists the names
python -m experiments.explain --from=trl config.yaml    or verl, tunix, openrlhf
python -m experiments.explain --write_docs=docs/reference
"""
import pathlib
import sys

from absl import app, flags
import jax

_PLOT = flags.DEFINE_string(
    'plot', None, 'A PNG of loss and gradient against the ratio, to write.')
_DOCS = flags.DEFINE_string(
    'write_docs', None, 'Folder to write the reference pages to.')
_FROM = flags.DEFINE_enum(
    'from', None, ['trl', 'verl', 'tunix', 'openrlhf'],
    'A library whose config is to be read; its file follows.')


def main(argv):
  # Before the first array: an accelerator is neither needed nor looked for.
  jax.config.update('jax_platforms', 'cpu')
  from rlclip import translate
  from rlclip.analysis import rule_pages, rule_plots, rules
  if len(argv) > 2 or (_FROM.value and len(argv) != 2):
    raise app.UsageError(
        f'Give one name, or --from and one file; got {argv[1:]}.')
  if _DOCS.value:
    folder = pathlib.Path(_DOCS.value)
    folder.mkdir(parents=True, exist_ok=True)
    for name, contents in rule_pages.pages().items():
      (folder / name).write_text(contents, encoding='utf-8')
      print(folder / name)
  if len(argv) == 1:
    print('' if _DOCS.value else rule_pages.listing(), end='')
    return
  try:
    if _FROM.value:
      print(translate.main_text(_FROM.value, argv[1]))
      return
    rule = rules.find(argv[1])
    others = rules.meanings(argv[1])[1:]
    print(rule_pages.text(rule, others), end='')
    if _PLOT.value:
      rule_plots.draw(rule, _PLOT.value)
      print(f'\nDrawn: {_PLOT.value}')
  except ValueError as error:
    sys.exit(str(error))


if __name__ == '__main__':
  app.run(main)
