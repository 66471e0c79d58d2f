"""Reward functions that misbehave, for the tests of the pool."""
import os
import sys
import time


def hang(prompt, completion, tokens, **fields):
  """Hangs on 'hang' without ever releasing the interpreter's lock."""
  if completion == 'hang':
    return 9**9**9 % 7
  return float(len(completion))


def sleep(prompt, completion, tokens, **fields):
  time.sleep(float(completion))
  return 1.0


def as_number(prompt, completion, tokens, **fields):
  return float(completion)


def die(prompt, completion, tokens, **fields):
  if completion == 'die':
    os._exit(3)
  return 1.0


def fail(prompt, completion, tokens, **fields):
  if completion == 'raise':
    raise KeyError('no such column')
  return float('nan') if completion == 'nan' else 1.0


def greedy(prompt, completion, tokens, **fields):
  return float(len(bytearray(int(completion))))


def loaded(prompt, completion, tokens, **fields):
  return float(completion in sys.modules)


def pid(prompt, completion, tokens, **fields):
  return float(os.getpid())


def pid_after(prompt, completion, tokens, **fields):
  time.sleep(float(completion))
  return float(os.getpid())


def unscorable(prompt, completion, tokens, **fields):
  return None
