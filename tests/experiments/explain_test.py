"""The command explains, draws, lists, and says what it does not know."""
import contextlib
import io
import pathlib

from absl import flags
from absl.testing import absltest, flagsaver

from experiments import explain

_REFERENCE = pathlib.Path(__file__).parents[2] / 'docs' / 'reference'


def _run(*names):
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    explain.main(['explain', *names])
  return out.getvalue()


class ExplainTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    if not flags.FLAGS.is_parsed():
      flags.FLAGS.mark_as_parsed()

  def test_explains_and_draws(self):
    path = self.create_tempdir().full_path + '/new/plot.png'
    with flagsaver.flagsaver(plot=path):
      text = _run('gate:dual_clip(cap=4)')
    self.assertStartsWith(text, 'dual_clip(cap=4) (gate)\n')
    self.assertIn('A = -1  w < 0.8, w > 4  nowhere', text)
    with open(path, 'rb') as file:
      self.assertEqual(file.read(4), b'\x89PNG')

  def test_without_a_name_it_lists_them(self):
    text = _run()
    for name in ('atr_grpo', 'hellinger', 'pessimistic_min', 'urkl', 'icepop'):
      self.assertIn(name, text)

  def test_the_reference_is_what_it_writes(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    with flagsaver.flagsaver(write_docs=str(folder)):
      _run()
    read = lambda place: {
        path.name: path.read_text(encoding='utf-8')
        for path in sorted(place.iterdir())}
    written, committed = read(folder), read(_REFERENCE)
    self.assertSameElements(written, committed)
    for name, contents in written.items():
      self.assertMultiLineEqual(
          committed[name], contents, msg='Write it again: python -m '
          'experiments.explain --write_docs=docs/reference')

  def test_an_unknown_name_ends_with_the_nearest(self):
    with self.assertRaisesRegex(SystemExit, 'hellinger'):
      _run('helinger')


if __name__ == '__main__':
  absltest.main()
