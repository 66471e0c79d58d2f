"""Rewards by name."""
import pytest

from rlclip import rewards


def test_files_of_the_package_register_themselves():
  assert {'arithmetic', 'final_answer', 'math'} <= set(rewards.names())


def test_a_function_from_elsewhere_goes_by_its_path():
  assert rewards.get('builtins:max') is max


def test_submodules_are_attributes():
  assert rewards.math.score('\\boxed{4}', '4') == 1.0


def test_numbers_of_a_reward_that_it_does_not_take_are_named():
  with pytest.raises(ValueError, match='ngram_size.*repetition.n=4'):
    rewards.get('repetition(n=4)')


@pytest.mark.parametrize('name', [
    'nothing', 'no.such:thing', 'builtins:nix', 'trl:no.such:thing'])
def test_unknown_names_are_named(name):
  with pytest.raises(ValueError, match=name.removeprefix('trl:')):
    rewards.get(name)
