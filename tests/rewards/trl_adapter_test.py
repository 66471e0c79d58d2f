"""Functions in TRL's form, run by the pool as they are."""
from rlclip import rewards
from rlclip.rewards.pool import Pool, ScoreItem

STYLE = 'tests.rewards.trl_style:'


def test_functions_for_trl_run_unchanged_beside_others():
  weights = {f'trl:{STYLE}accuracy': 2.0, f'trl_chat:{STYLE}polite': 0.5,
             f'trl:{STYLE}num_tokens': -0.25, 'final_answer': 1.0}
  samples = [('4', '4'), ('#### 4 please', '4'), ('4', None)]
  with Pool(weights) as pool:
    result = pool.score([
        ScoreItem('x?', text, (1, 2), {'solution': solution, 'level': 3})
        for text, solution in samples])
  assert list(result.by_function.values()) == [
      [1, 0, None], [0, 1, 0], [2, 2, 2], [0, 1, 0]]
  # 2 - 0.5; 0.5 - 0.5 + 1; a None makes the whole None.
  assert result.rewards == [1.5, 1.0, None]


def test_chat_prompts_are_messages():
  assert rewards.get(f'trl_chat:{STYLE}asks')('x?', 'y', ()) == 1.0


def test_a_list_of_another_length_is_told():
  with Pool({f'trl:{STYLE}too_many': 1.0}) as pool:
    result = pool.score([ScoreItem('', 'a')])
  assert result.rewards == [None]
  assert "1 reward of 'too_many' for 1 completion, got 2" in (
      result.failures[0].message)
