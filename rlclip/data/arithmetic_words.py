"""Arithmetic of two operands in words, for small chat models."""
import random
from typing import Sequence

from rlclip.data import splits, tasks

_NAMES = (
    'Tom', 'Mia', 'Sam', 'Ana', 'Leo', 'Eva', 'Max', 'Zoe', 'Ben', 'Ida')
_THINGS = (
    'marbles', 'apples', 'stickers', 'coins', 'books', 'shells', 'cards',
    'pencils', 'beads', 'stamps')

# Placeholders: a and b are the operands, n a name, t a thing.
_TEMPLATES = {
    '+': (
        'What is {a} + {b}?',
        'What is {a} plus {b}?',
        'Calculate {a} + {b}.',
        'What is the sum of {a} and {b}?',
        '{n} has {a} {t} and gets {b} more. How many {t} does {n} have now?',
        'There are {a} {t} in one box and {b} in another. How many {t} are '
        'there in total?'),
    '-': (
        'What is {a} - {b}?',
        'What is {a} minus {b}?',
        'Calculate {a} - {b}.',
        'What is the difference between {a} and {b}?',
        '{n} has {a} {t} and gives away {b}. How many {t} are left?',
        'A shop had {a} {t} and sold {b} of them. How many {t} remain?'),
    '*': (
        'What is {a} * {b}?',
        'What is {a} times {b}?',
        'Calculate {a} * {b}.',
        'What is the product of {a} and {b}?',
        '{n} buys {a} bags with {b} {t} in each. How many {t} is that?',
        'There are {a} shelves with {b} {t} on each. How many {t} are there?'),
}


@tasks.register('arithmetic_words')
def arithmetic_words(
    *, operations: str = '+-*', operand: Sequence[int] = (10, 99),
    factor: Sequence[int] = (2, 15), instruction: str = '', system: str = '',
    chat: bool = True, num_train: int = 1 << 16, num_test: int = 1 << 10,
    seed: int = 0,
) -> tasks.Task:
  """Addition, subtraction and small multiplication, asked in words.

  The answer is the last number of the completion. A problem (operation and
  operands, whichever way round they are added) is in one split only, in all
  its wordings.

  Args:
    operations: which of + - *, equally often; a repeated one more often.
    operand: least and most, of sums and differences; no difference is
      negative.
    factor: least and most, of products.
    instruction: follows the question.
    system: a system message; empty leaves it to the chat template.
    chat: whether prompts are chat messages, else plain text.
    num_train: size of the training split; problems may repeat.
    num_test: size of the test split.
    seed: of the examples.
  """
  unknown = sorted(set(operations) - set(_TEMPLATES))
  if unknown or not operations:
    raise ValueError(
        f'Expected operations out of {"".join(_TEMPLATES)!r}, got '
        f'{operations!r}.')
  ranges = {
      '+': splits.bounds('operand', operand, lowest=0),
      '-': splits.bounds('operand', operand, lowest=0),
      '*': splits.bounds('factor', factor, lowest=0)}

  def question(rng: random.Random) -> tuple[str, int, int]:
    operation = rng.choice(operations)
    a, b = (rng.randint(*ranges[operation]) for _ in range(2))
    return (operation, max(a, b), min(a, b)) if operation == '-' else (
        operation, a, b)

  def example(split: str, index: int) -> tasks.Example:
    operation, a, b = splits.draw(
        question, split, index, seed=seed,
        problem=lambda q: (q[0], *sorted(q[1:])))
    rng = random.Random(f'wording {seed}/{split}/{index}')
    text = rng.choice(_TEMPLATES[operation]).format(
        a=a, b=b, n=rng.choice(_NAMES), t=rng.choice(_THINGS))
    answer = {'+': a + b, '-': a - b, '*': a * b}[operation]
    return {
        'id': f'arithmetic_words-{split}-{seed}-{index}', 'problem': text,
        'answer': str(answer), 'operation': operation}

  def messages(example):
    text = ' '.join(filter(None, (example['problem'], instruction)))
    if not chat:
      return '\n\n'.join(filter(None, (system, text))) + '\n'
    head = [{'role': 'system', 'content': system}] if system else []
    return [*head, {'role': 'user', 'content': text}]

  sizes = {'train': num_train, 'test': num_test}

  def examples(split: str):
    tasks.check_split('arithmetic_words', split, tuple(sizes))
    return tasks.Examples(sizes[split], lambda i: example(split, i))

  return tasks.Task(
      name='arithmetic_words', reward='arithmetic', splits=tuple(sizes),
      examples=examples, messages=messages, gold=lambda e: e['answer'])
