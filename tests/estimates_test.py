"""pass@k, maj@k, mean@k and intervals, against numbers done by hand."""
import collections
import itertools

import numpy as np
import pytest

from rlclip import estimates


@pytest.mark.parametrize('n, c, k, expected', [
    (8, 3, 4, 1 - 5 / 70),  # C(5, 4) / C(8, 4) = .928571
    (4, 1, 1, 0.25), (4, 0, 4, 0.0), (4, 4, 1, 1.0), (5, 2, 4, 1.0),
    (2, 1, 2, 1.0)])
def test_pass_at_k(n, c, k, expected):
  assert estimates.pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_the_share_of_subsets_with_a_right_one():
  right = [1, 0, 0, 1, 0, 0, 0]
  subsets = list(itertools.combinations(right, 3))
  share = sum(map(any, subsets)) / len(subsets)
  assert estimates.pass_at_k(7, 2, 3) == pytest.approx(share)


def test_pass_at_k_neither_overflows_nor_cancels():
  # 1 - C(9999, 100) / C(10000, 100) = 100 / 10000
  assert estimates.pass_at_k(10_000, 1, 100) == pytest.approx(0.01, rel=1e-12)


def test_maj_at_k_of_two_right_and_one_wrong():
  # Of 3 pairs one is right twice and two are tied: 1/3 + 2/3 x 1/2.
  np.testing.assert_allclose(
      estimates.maj_at_every_k([2, 1], [1, 0], 0), [2 / 3, 2 / 3, 1])


@pytest.mark.parametrize('votes, credits, abstaining', [
    ([3, 2, 2, 1], [0, 1, 0, 0], 0), ([2, 2, 2], [1, 0, 0.5], 2),
    ([1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0], 1), ([4, 3], [0, 1], 1),
    ([], [], 3), ([2, 0, 1], [0, 1, 1], 2)])
def test_maj_at_k_is_the_mean_over_all_draws(votes, credits, abstaining):
  drawn = [i for i, v in enumerate(votes) for _ in range(v)]
  drawn += [None] * abstaining
  got = estimates.maj_at_every_k(votes, credits, abstaining)
  for k in range(1, len(drawn) + 1):
    values = []
    for draw in itertools.combinations(drawn, k):
      counts = collections.Counter(i for i in draw if i is not None)
      first = [i for i, c in counts.items() if c == max(counts.values())]
      values.append(np.mean([credits[i] for i in first]) if first else 0.0)
    assert got[k - 1] == pytest.approx(np.mean(values), abs=1e-12), k


def test_maj_at_k_of_a_thousand_samples_stays_in_range():
  got = estimates.maj_at_every_k([400, 300], [1, 0], 300)
  assert got[0] == pytest.approx(0.4)
  assert np.all(np.diff(got[::2]) > -1e-9) and got[-1] == pytest.approx(1)


@pytest.mark.parametrize('votes, credits, abstaining', [
    ([], [], 0), ([1], [], 0), ([1], [1], -1), ([-1], [1], 3),
    ([1000], [1], 1)])
def test_impossible_votes_are_refused(votes, credits, abstaining):
  with pytest.raises(ValueError, match='maj_at_every_k needs 1 to 1000'):
    estimates.maj_at_every_k(votes, credits, abstaining)


@pytest.mark.parametrize('n, c, k', [(4, 1, 5), (4, 5, 1), (4, -1, 1),
                                     (4, 1, 0)])
def test_impossible_counts_are_refused(n, c, k):
  with pytest.raises(ValueError, match=f'num_samples={n}'):
    estimates.pass_at_k(n, c, k)


def test_one_sample_a_problem_gets_wilsons_interval():
  # p = 8/10, z^2/n = 0.384146: (0.8 + 0.192073 -+ sqrt(0.384146 (0.16 +
  # 0.0960364))) / 1.384146.
  got = estimates.mean_at_k([[1]] * 8 + [[0]] * 2)
  assert (got.value, got.method, got.num_problems) == (0.8, 'wilson', 10)
  assert got.low == pytest.approx(0.490162, abs=1e-5)
  assert got.high == pytest.approx(0.943318, abs=1e-5)


def test_samples_of_one_problem_are_not_independent():
  # 20 problems, all samples alike: 8 samples each say no more than 1.
  rows = [[i % 2] * 8 for i in range(20)]
  got = estimates.mean_at_k(rows)
  assert (got.value, got.method) == (0.5, 'bootstrap')
  # Normal interval over problems: 1.96 sqrt(0.25 / 20) = 0.219.
  assert got.high - got.low == pytest.approx(2 * 0.219, rel=0.1)


def test_all_right_leaves_doubt():
  got = estimates.mean_at_k([[1, 1]] * 30)
  # Wilson at p = 1: low = 1 / (1 + z^2 / 30)
  assert got.low == pytest.approx(1 / (1 + 3.841459 / 30), abs=1e-6)
  assert got.value == 1.0
  assert got.high == pytest.approx(1.0)


def test_a_quantity_has_an_interval_where_problems_differ():
  got = estimates.mean_quantity([100.0, 300.0] * 20)
  # 1.96 x 100 / sqrt(40) = 31.0
  assert (got.value, got.method) == (200.0, 'bootstrap')
  assert got.high - got.low == pytest.approx(2 * 31, rel=0.1)
  assert estimates.mean_quantity([7.0]) == estimates.Estimate(
      7.0, 7.0, 7.0, 'none', 1)


def test_problems_weigh_the_same_however_often_sampled():
  assert estimates.mean_at_k([[1], [0, 0, 0]]).value == 0.5


def test_mean_pass_at_k():
  got = estimates.mean_pass_at_k([8, 8], [3, 0], 4)
  assert got.value == pytest.approx(0.928571 / 2, abs=1e-6)


def test_pairing_removes_how_hard_problems_are():
  before = np.tile([0.0, 0.9], 50)
  got = estimates.paired_difference(before, before + 0.1)
  assert got.value == pytest.approx(0.1)
  assert (got.low, got.high) == pytest.approx((0.1, 0.1))
  alone = estimates.confidence_interval(before)
  assert alone.high - alone.low > 0.15


def test_intervals_are_the_same_each_time():
  values = np.linspace(0, 1, 40)
  assert estimates.confidence_interval(values) == estimates.confidence_interval(
      values)


def test_the_bootstrap_covers_the_truth_as_often_as_it_says():
  generator = np.random.default_rng(0)
  covered = 0
  for seed in range(200):
    chance = generator.beta(2, 2, size=60)  # mean 0.5
    rows = generator.random((60, 4)) < chance[:, None]
    got = estimates.confidence_interval(rows.mean(1), seed=seed)
    covered += got.low <= 0.5 <= got.high
  # 95% of 200 is 190; four standard deviations are 12.
  assert covered >= 178


@pytest.mark.parametrize('values', [[], [1.5], [-0.1], [np.nan]])
def test_values_outside_the_unit_interval_are_refused(values):
  with pytest.raises(ValueError, match='0, 1'):
    estimates.confidence_interval(values)


def test_unequal_pairs_are_refused():
  with pytest.raises(ValueError, match='got 1 and 2'):
    estimates.paired_difference([1], [1, 0])
  with pytest.raises(ValueError, match='at least one score'):
    estimates.mean_at_k([[1], []])
