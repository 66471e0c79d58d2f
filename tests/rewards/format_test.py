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


@pytest.mark.parametrize('prompt, text, think, think_answer', [
    ('', '<think>a</think>b', 1, 0),
    ('', '<think>a</think> <answer>b</answer>\n', 0, 1),
    ('...<think>\n', 'a</think><answer>b</answer>', 0, 1),
    ('...<think>', '<think>a</think>b', 0, 0), ('', 'a</think>b', 0, 0),
    ('', '<think>a<think></think>b', 0, 0), ('', '<think> </think>b', 0, 0),
    ('', '<think>a</think>', 0, 0), ('', 'Well, <think>a</think>b', 0, 0),
    ('', '<think>a</think>b<think>c</think>d', 0, 0),
    ('', '<think>a</think><answer> </answer>', 0, 0),
    ('', '<think>a</think>So <answer>b</answer>', 0, 0),
    ('', '<think>a</think><answer>b</answer><answer>c</answer>', 0, 0)])
def test_tags(prompt, text, think, think_answer):
  assert rewards.get('think')(prompt, text, ()) == think
  assert rewards.get('think_answer')(prompt, text, ()) == think_answer
