"""pass@k, mean@k and intervals, against numbers done by hand."""
import itertools

import numpy as np
import pytest

from rlclip import evaluate


@pytest.mark.parametrize('n, c, k, expected', [
    (8, 3, 4, 1 - 5 / 70),  # C(5, 4) / C(8, 4) = .928571
    (4, 1, 1, 0.25), (4, 0, 4, 0.0), (4, 4, 1, 1.0), (5, 2, 4, 1.0),
    (2, 1, 2, 1.0)])
def test_pass_at_k(n, c, k, expected):
  assert evaluate.pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_the_share_of_subsets_with_a_right_one():
  right = [1, 0, 0, 1, 0, 0, 0]
  subsets = list(itertools.combinations(right, 3))
  share = sum(map(any, subsets)) / len(subsets)
  assert evaluate.pass_at_k(7, 2, 3) == pytest.approx(share)


def test_pass_at_k_neither_overflows_nor_cancels():
  # 1 - C(9999, 100) / C(10000, 100) = 100 / 10000
  assert evaluate.pass_at_k(10_000, 1, 100) == pytest.approx(0.01, rel=1e-12)


@pytest.mark.parametrize('n, c, k', [(4, 1, 5), (4, 5, 1), (4, -1, 1),
                                     (4, 1, 0)])
def test_impossible_counts_are_refused(n, c, k):
  with pytest.raises(ValueError, match=f'num_samples={n}'):
    evaluate.pass_at_k(n, c, k)


def test_one_sample_a_problem_gets_wilsons_interval():
  # p = 8/10, z^2/n = 0.384146: (0.8 + 0.192073 -+ sqrt(0.384146 (0.16 +
  # 0.0960364))) / 1.384146.
  got = evaluate.mean_at_k([[1]] * 8 + [[0]] * 2)
  assert (got.value, got.method, got.num_problems) == (0.8, 'wilson', 10)
  assert got.low == pytest.approx(0.490162, abs=1e-5)
  assert got.high == pytest.approx(0.943318, abs=1e-5)


def test_samples_of_one_problem_are_not_independent():
  # 20 problems, all samples alike: 8 samples each say no more than 1.
  rows = [[i % 2] * 8 for i in range(20)]
  got = evaluate.mean_at_k(rows)
  assert (got.value, got.method) == (0.5, 'bootstrap')
  # Normal interval over problems: 1.96 sqrt(0.25 / 20) = 0.219.
  assert got.high - got.low == pytest.approx(2 * 0.219, rel=0.1)


def test_all_right_leaves_doubt():
  got = evaluate.mean_at_k([[1, 1]] * 30)
  # Wilson at p = 1: low = 1 / (1 + z^2 / 30)
  assert got.low == pytest.approx(1 / (1 + 3.841459 / 30), abs=1e-6)
  assert got.value == 1.0
  assert got.high == pytest.approx(1.0)


def test_problems_weigh_the_same_however_often_sampled():
  assert evaluate.mean_at_k([[1], [0, 0, 0]]).value == 0.5


def test_mean_pass_at_k():
  got = evaluate.mean_pass_at_k([8, 8], [3, 0], 4)
  assert got.value == pytest.approx(0.928571 / 2, abs=1e-6)


def test_pairing_removes_how_hard_problems_are():
  before = np.tile([0.0, 0.9], 50)
  got = evaluate.paired_difference(before, before + 0.1)
  assert got.value == pytest.approx(0.1)
  assert (got.low, got.high) == pytest.approx((0.1, 0.1))
  alone = evaluate.confidence_interval(before)
  assert alone.high - alone.low > 0.15


def test_intervals_are_the_same_each_time():
  values = np.linspace(0, 1, 40)
  assert evaluate.confidence_interval(values) == evaluate.confidence_interval(
      values)


def test_the_bootstrap_covers_the_truth_as_often_as_it_says():
  generator = np.random.default_rng(0)
  covered = 0
  for seed in range(200):
    chance = generator.beta(2, 2, size=60)  # mean 0.5
    rows = generator.random((60, 4)) < chance[:, None]
    got = evaluate.confidence_interval(rows.mean(1), seed=seed)
    covered += got.low <= 0.5 <= got.high
  # 95% of 200 is 190; four standard deviations are 12.
  assert covered >= 178


@pytest.mark.parametrize('values', [[], [1.5], [-0.1], [np.nan]])
def test_values_outside_the_unit_interval_are_refused(values):
  with pytest.raises(ValueError, match='0, 1'):
    evaluate.confidence_interval(values)


def test_unequal_pairs_are_refused():
  with pytest.raises(ValueError, match='got 1 and 2'):
    evaluate.paired_difference([1], [1, 0])
  with pytest.raises(ValueError, match='at least one score'):
    evaluate.mean_at_k([[1], []])
