"""Every name elsewhere belongs to something that there is."""
from absl.testing import absltest, parameterized

from rlclip import advantages, algorithms, divergences
from rlclip.analysis import peers
from rlclip.losses import mismatch, penalty, reduce
from rlclip.trust_region import bounds, gates, levels

REGISTRIES = {
    'algorithm': algorithms.REGISTRY, 'divergence': divergences.REGISTRY,
    'bounds': bounds.REGISTRY, 'gate': gates.REGISTRY,
    'level': levels.REGISTRY, 'penalty': penalty.ESTIMATORS,
    'mismatch': mismatch.REGISTRY, 'reduction': reduce.REGISTRY,
    'advantage': advantages.names()}
# What every one of the four libraries has.
EVERYWHERE = [
    ('bounds', 'fixed'), ('level', 'token'), ('reduction', 'token_mean'),
    ('reduction', 'sequence_mean'), ('advantage', 'group_zscore'),
    ('advantage', 'group_mean'), ('advantage', 'leave_one_out'),
    ('penalty', 'unweighted_k3'), ('mismatch', 'truncated_importance'),
    ('algorithm', 'grpo'), ('algorithm', 'gspo')]
LIBRARIES = ['OpenRLHF', 'TRL', 'Tunix', 'verl']


class PeersTest(parameterized.TestCase):

  def test_what_is_described_is_registered(self):
    missing = [(kind, name) for kind, name in peers._TABLE
               if name not in REGISTRIES[kind]]
    self.assertEmpty(missing)

  def test_kinds_are_those_with_a_registry(self):
    self.assertEqual(set(peers.KINDS), set(REGISTRIES))
    with self.assertRaisesRegex(ValueError, 'kind must be one of'):
      peers.names_elsewhere('gates', 'dual_clip')

  def test_libraries_are_spelled_one_way(self):
    found = {row.library for rows in peers._TABLE.values() for row in rows}
    self.assertEqual(sorted(found), LIBRARIES)

  @parameterized.parameters(*EVERYWHERE)
  def test_common_ground_is_named_in_all_four(self, kind, name):
    found = {row.library for row in peers.names_elsewhere(kind, name)}
    self.assertEqual(sorted(found), LIBRARIES)

  @parameterized.parameters(
      ('algorithm', 'cispo', 'TRL', 'the cap itself'),
      ('algorithm', 'dr_grpo', 'TRL', 'the constant is max_completion_length'),
      ('reduction', 'token_mean', 'Tunix', 'of each micro-batch'),
      ('advantage', 'group_zscore', 'OpenRLHF', '1e-9'),
      ('penalty', 'unweighted_k3', 'verl', '-10, 10'),
      ('penalty', 'unweighted_k1', 'Tunix', 'mean zero'))
  def test_says_where_a_name_means_something_else(
      self, kind, name, library, words):
    notes = [row.note for row in peers.names_elsewhere(kind, name)
             if row.library == library]
    self.assertIn(words, ' '.join(notes))

  def test_what_nobody_has_is_empty(self):
    self.assertEqual(peers.names_elsewhere('algorithm', 'atr_grpo'), ())


if __name__ == '__main__':
  absltest.main()
