"""The table of prompts: who shares, who is replaced, what is refused."""
import numpy as np

from rlclip.sampler import prefixes

A, B, C = (np.array(tokens, np.int32) for tokens in ([1, 2], [1, 3], [4]))


def test_a_prompt_is_computed_once_for_all_who_continue_it():
  table = prefixes.Table(num_prefixes=2, num_lines=3, num_slots=4)
  assert table.take(A, 0) == (0, True)
  assert table.take(A, 2) == (0, False)
  assert table.take(B, 1) == (1, True)
  rows, places = table.members()
  np.testing.assert_array_equal(rows, [[0, 2, 4], [1, 4, 4]])
  # Slot 0 has line 0, slot 2 line 1 of prefix 0, slot 1 line 0 of prefix 1.
  assert [places[i] for i in (0, 2, 1)] == [0, 1, 3]


def test_a_full_prefix_is_computed_again_beside_itself():
  table = prefixes.Table(num_prefixes=2, num_lines=1, num_slots=2)
  assert table.take(A, 0) == (0, True)
  assert table.take(A, 1) == (1, True)


def test_nothing_is_given_away_while_all_prefixes_are_continued():
  table = prefixes.Table(num_prefixes=1, num_lines=2, num_slots=3)
  table.take(A, 0)
  table.take(A, 1)
  assert table.take(B, 2) is None
  table.leave(0)
  assert table.take(B, 2) is None
  table.leave(1)
  assert table.take(B, 2) == (0, True)


def test_a_prompt_that_comes_back_is_still_there_unless_it_is_forgotten():
  table = prefixes.Table(num_prefixes=2, num_lines=1, num_slots=1)
  for prompt in (A, B):
    table.take(prompt, 0)
    table.leave(0)
  assert table.take(A, 0) == (0, False)
  table.leave(0)
  # B was left longest ago.
  assert table.take(C, 0) == (1, True)
  table.leave(0)
  table.forget()
  assert table.take(A, 0)[1]


def test_a_prompt_is_known_by_its_tokens_whatever_their_type():
  table = prefixes.Table(num_prefixes=3, num_lines=2, num_slots=4)
  assert table.take(np.array([1], np.int64), 0) == (0, True)
  assert table.take(np.array([1, 0], np.int32), 1) == (1, True)
  assert table.take(np.array([1], np.int32), 2) == (0, False)
