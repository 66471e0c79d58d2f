"""What counts as stating an answer."""
import pytest

from rlclip import rewards


@pytest.mark.parametrize('text, reward', [
    ('\\boxed{7}', 1), ('\\boxed{}', 0), ('\\boxed{ }', 0),
    ('\\boxed{\\{1, 2\\}}', 1), ('#### 7', 1), ('####', 0), ('### Step 1', 0),
    ('Answer: 7', 1), ('The answer is 7.', 1), ('The answer is', 0),
    ('<answer>7</answer>', 1), ('<answer></answer>', 0),
    ('<think>\\boxed{7}</think> hm', 0), ('seven', 0)])
def test_a_stated_answer(text, reward):
  assert rewards.get('final_answer')('', text, ()) == reward
