"""Everything with a name is found and described, in a readable form."""
import functools

from absl.testing import absltest, parameterized

from rlclip import advantages, algorithms, divergences
from rlclip.analysis import rule_pages, rule_plots, rule_sections, rules
from rlclip.losses import mismatch, penalty, reduce
from rlclip.trust_region import bounds, gates, levels

_REGISTERED = {
    'algorithm': algorithms.names(), 'divergence': divergences.names(),
    'bounds': bounds.REGISTRY, 'gate': gates.REGISTRY,
    'level': levels.REGISTRY, 'penalty': penalty.ESTIMATORS,
    'mismatch': mismatch.REGISTRY, 'reduction': reduce.REGISTRY,
    'advantage': advantages.names()}
# Kinds whose names act on a ratio: each is shown by a rule.
_SHOWN = {'algorithm', 'bounds', 'gate', 'level', 'penalty', 'mismatch'}


@functools.lru_cache(maxsize=None)
def _text(kind, name):
  return rule_pages.text(rules.describe(kind, name))


class EveryNameTest(parameterized.TestCase):

  @parameterized.parameters(*_REGISTERED)
  def test_every_registered_name_is_of_its_kind(self, kind):
    listed = [name for _, name in rules.names(kind)]
    self.assertContainsSubset(_REGISTERED[kind], listed)

  @parameterized.parameters(*rules.names())
  def test_a_description_has_its_source_and_fits_a_terminal(self, kind, name):
    text = _text(kind, name)
    self.assertIn('\nSource\n------\n  ', text)
    self.assertNotIn('Not drawn', text)
    self.assertNotIn('Not computed', text)
    self.assertTrue(text.isascii())
    self.assertLessEqual(max(map(len, text.splitlines())), 100)
    if kind in _SHOWN:
      self.assertIn('A = -1', text.partition('Where the gradient is zero')[2])


class FindTest(parameterized.TestCase):

  @parameterized.parameters(
      ('atr_grpo', 'algorithm', 'atr_grpo'),
      ('kl3', 'divergence', 'forward_kl'),
      ('gate:none', 'gate', 'none'), ('gates:ppo', 'gate', 'pessimistic_min'),
      ('bound:fixed', 'bounds', 'fixed'), ('urkl', 'penalty', 'urkl'))
  def test_by_name_alias_and_kind(self, text, kind, name):
    rule = rules.find(text)
    self.assertEqual((rule.kind, rule.name), (kind, name))

  def test_numbers_reach_the_rule(self):
    self.assertEqual(rules.find('dual_clip(cap=4)').spec.gate.cap, 4.0)
    self.assertEqual(rules.find('atr_grpo(delta=0.03)').spec.bounds.delta, 0.03)
    self.assertEqual(rules.find('alpha(order=2)').value.name, 'alpha(order=2)')
    for text in ('dual_clip(caps=4)', 'fixed(eps_low=-1)', 'kl3(order=2)'):
      with self.assertRaisesRegex(ValueError, 'caps|eps_low|order'):
        rules.find(text)

  @parameterized.parameters(
      ('helinger', 'hellinger'), ('atr', 'atr_grpo'), ('gate:non', 'none'),
      ('ABC-GRPO', 'abc_grpo'))
  def test_an_unknown_name_is_told_its_nearest(self, text, nearest):
    with self.assertRaisesRegex(rules.UnknownName, f'Nearest: .*{nearest}'):
      rules.find(text)


class TextTest(parameterized.TestCase):

  @parameterized.parameters(
      (1.2135497, '1.2135'), (0.81310512, '0.8131'), (1.0004, '1.0004'),
      (0.9997, '0.9997'), (1 + 1e-12, '1'), (3.0, '3'), (22.0264, '22.03'),
      (0.052469, '0.0525'), (float('inf'), 'inf'), (0.0, '0'))
  def test_ratios_have_the_digits_of_their_distance_from_1(self, w, expected):
    self.assertEqual(rule_sections.ratio_text(w), expected)

  def test_the_table_of_atr_grpo(self):
    text = _text('algorithm', 'atr_grpo')
    self.assertIn('[0.8131, 1.2135]', text)
    self.assertIn('second-hand', text)
    # w = 2 is outside: no gradient where A = +1, the whole where A = -1.
    line = next(x for x in text.splitlines() if x.strip().startswith('2.00'))
    self.assertEqual(line.split(), ['2.00', '-1.2135', '0', '2.0000', '2.0000'])

  def test_combinations_that_are_refused_are_found_by_trying(self):
    self.assertIn('Refused with bounds fixed_by_sign',
                  _text('gate', 'pessimistic_min'))
    self.assertIn('Refused numbers: delta = -1, 0, inf, nan',
                  _text('bounds', 'from_divergence'))

  def test_a_token_mean_weighs_tokens_and_not_micro_batches(self):
    self.assertIn(
        'of 1 at each of the 8: 1.4.', _text('reduction', 'token_mean'))

  def test_what_is_no_function_of_a_ratio_is_not_drawn(self):
    with self.assertRaisesRegex(ValueError, 'no function of a ratio'):
      rule_plots.draw(rules.find('group_zscore'), '/nowhere.png')


if __name__ == '__main__':
  absltest.main()
