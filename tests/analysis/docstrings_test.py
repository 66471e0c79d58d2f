"""A docstring comes apart into what it says."""
from absl.testing import absltest, parameterized

from rlclip.analysis import docstrings

_TEXT = """Caps the ratio, i.e. nothing above the cap counts.

J = min(w, cap) A;  g = w
where w < cap. The cap is far out. Only its upper side is read, as Li et al.
have it. All ratios off w = 1 are changed.

Attributes:
  cap: largest ratio,
    above 1.
  form: 'a' or 'b'.

Raises:
  ValueError: for a cap
    below 1.

Source: Li et al., arXiv 1, second-hand;
its cap is a guess.
"""


class DocstringTest(parameterized.TestCase):

  def test_every_part(self):
    self.assertEqual(docstrings.read(_TEXT), docstrings.Docstring(
        summary='Caps the ratio, i.e. nothing above the cap counts.',
        prose=('The cap is far out.', 'All ratios off w = 1 are changed.'),
        formulas=('J = min(w, cap) A', 'g = w', 'where w < cap'),
        limits=('Only its upper side is read, as Li et al. have it.',
                'Refused for a cap below 1.'),
        numbers={'cap': 'largest ratio, above 1.', 'form': "'a' or 'b'."},
        source='Li et al., arXiv 1, second-hand; its cap is a guess.',
        trust='a guess, with no text behind it'))

  def test_a_source_in_the_first_line_and_a_formula_as_summary(self):
    doc = docstrings.read('f(w) = (w - 1)^2 / 2. Source: Pearson, 1900.')
    self.assertEqual(doc.formulas, ('f(w) = (w - 1)^2 / 2.',))
    self.assertEqual(doc.source, 'Pearson, 1900.')
    self.assertEqual(doc.trust, '')

  @parameterized.parameters(
      ('1 - eps_low <= w <= 1 + eps_high.', True),
      ('low, high = 1 -+ 2 delta, low 0 from delta = 1/2 on.', True),
      ('A < 0: J = max(w A, cap A).', True),
      ('D(policy || anchor) over the vocabulary <= delta.', True),
      ('A token beyond w = 1 is blocked.', False),
      ("With counts = 'kept' blocked tokens count 0.", False),
      ('Without a relation.', False))
  def test_a_formula_has_its_relation_near_the_beginning(self, text, expected):
    self.assertEqual(docstrings.is_formula(text), expected)


if __name__ == '__main__':
  absltest.main()
