"""The statistics against scipy, statsmodels, cases counted by hand, and a world whose truth is known."""

from __future__ import annotations

import itertools
import re
import sys

import numpy as np
import pytest

from analysis.reach import could_find
from analysis.sequential import Design
from analysis.stats import (
    GUESSES,
    confusion,
    cumulative,
    holm,
    late_minus_early,
    paired,
    rate_interval,
    sign_flip,
    spread,
    students_quantile,
    students_tail,
)
from benchmarks.null_simulation import measured
from core.run.metrics import pass_at_k, wilson
from hydra_plugins.reasoningbank_verdict._study import _could_find
from scripts import power

NAN = float("nan")


@pytest.mark.parametrize(("won", "n"), [(0, 10), (3, 10), (10, 10), (37, 140), (1, 1)])
def test_wilson_is_that_of_statsmodels(won, n):
    from statsmodels.stats.proportion import proportion_confint

    assert wilson(won, n) == pytest.approx(proportion_confint(won, n, method="wilson"), abs=1e-6)


@pytest.mark.parametrize(("df", "tail"), [(1.3, 0.025), (4, 0.025), (4, 0.0001), (119.5, 0.4), (50_000, 0.005)])
def test_without_scipy_students_t_is_the_same(monkeypatch, df, tail):
    by_scipy = students_quantile(df, tail)
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    assert students_quantile(df, tail) == pytest.approx(by_scipy, rel=1e-8)
    assert students_tail(df, by_scipy) == pytest.approx(tail, rel=1e-8)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (4, 0), (5, 1), (12, 9), (30, 11), (200, 150)])
def test_a_sign_flip_of_ones_is_mcnemars_exact_test(gained, lost):
    from statsmodels.stats.contingency_tables import mcnemar

    expected = mcnemar([[5, gained], [lost, 5]], exact=True).pvalue
    assert sign_flip([1] * gained + [-1] * lost + [0] * 7) == pytest.approx(min(1.0, expected))


@pytest.mark.parametrize("seed", range(5))
def test_a_sign_flip_is_scipys_permutation_test(seed):
    from scipy.stats import permutation_test

    differences = np.random.default_rng(seed).integers(-3, 4, size=11)
    pairs = (differences.astype(float), np.zeros(11))
    found = permutation_test(pairs, lambda x, y: np.sum(x - y), permutation_type="samples", n_resamples=10**5)
    assert sign_flip(differences) == pytest.approx(min(1.0, found.pvalue))


def test_a_sign_flip_by_hand():
    assert sign_flip([2, 1]) == 0.5  # of +3 +1 -1 -3 two are as far out
    assert sign_flip([1, 1, 1]) == sign_flip([0.5, 0.5, 0.5]) == sign_flip([1 / 3, 1 / 3, 1 / 3]) == 0.25
    assert sign_flip([1, 0.5]) == 0.5 and sign_flip([0.1234567, 0.7654321]) == 0.5  # graded scores
    assert sign_flip([]) == sign_flip([0, 0]) == sign_flip([1, -1]) == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_holm_is_that_of_statsmodels(seed):
    from statsmodels.stats.multitest import multipletests

    p = np.random.default_rng(seed).uniform(size=7) ** 3
    assert holm(list(p)) == pytest.approx(multipletests(p, method="holm")[1])
    assert holm([0.01, None, 0.04, NAN]) == [0.02, None, 0.04, None]


@pytest.mark.parametrize("n", [1, 4, 6])
def test_pass_at_k_is_the_share_of_all_choices(n):
    for won, k in itertools.product(range(n + 1), range(1, n + 1)):
        choices = list(itertools.combinations([1] * won + [0] * (n - won), k))
        assert pass_at_k(n, won, k) == pytest.approx(np.mean([any(choice) for choice in choices]))
    assert pass_at_k(n, 0, n + 1) is None


@pytest.mark.parametrize("counts", [(20, 5, 10, 15), (1, 0, 0, 1), (3, 4, 0, 0)])
def test_kappa_is_that_of_statsmodels(counts):
    from statsmodels.stats.inter_rater import cohens_kappa

    tp, fp, fn, tn = counts
    pairs = [(True, True)] * tp + [(True, False)] * fp + [(False, True)] * fn + [(False, False)] * tn
    found = confusion(pairs)
    assert (found["tp"], found["fp"], found["fn"], found["tn"]) == counts
    assert found["kappa"] == pytest.approx(cohens_kappa([[tp, fp], [fn, tn]]).kappa)
    assert found["agreement"] == (tp + tn) / sum(counts)


def test_kappa_where_it_means_nothing():
    nothing = dict.fromkeys(("n", "tp", "fp", "fn", "tn"), 0)
    assert confusion([]) == nothing | dict.fromkeys(("agreement", "kappa", "precision", "recall"))
    assert confusion([(True, True)] * 3)["kappa"] is None


def test_the_mean_is_taken_within_seeds_first_and_one_seed_has_wilsons_interval():
    found = rate_interval(np.array([[1.0, 0.0], [1.0, NAN], [0.0, NAN]]))
    assert found["mean"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["sd"] == pytest.approx(np.std([2 / 3, 0], ddof=1))
    assert [rate_interval(np.array([1, 0, 0, 0.0]))[end] for end in ("low", "high")] == wilson(1, 4)
    assert rate_interval(np.full((4, 2), NAN))["mean"] is None


def solved(*places, n_tasks=30, n_seeds=3):
    """Outcomes of which these places are 1."""
    values = np.zeros((n_tasks, n_seeds))
    values.flat[list(places)] = 1
    return values


def test_one_success_more_changes_an_interval_by_little():
    found = [rate_interval(solved(*range(0, 10 * wins, 10))) for wins in range(5)]
    for less, more in itertools.pairwise(found):
        assert less["low"] <= more["low"] < less["low"] + 0.02
        assert less["high"] - 0.01 < more["high"] < less["high"] + 0.03
    assert found[0]["high"] > 0.1  # three seeds of one task may be one piece of evidence
    upside_down = rate_interval(1 - solved(3))
    assert 1 - upside_down["high"] == pytest.approx(rate_interval(solved(3))["low"])


@pytest.mark.parametrize("values", [[[1, 0, 0]], [[1, 0], [0, 1], [1, 0], [0, 1]], [[1, 0, NAN], [0, NAN, 1]]])
def test_few_tasks_leave_a_wide_interval(values):
    found = rate_interval(np.array(values, float))
    assert found["low"] <= found["mean"] <= found["high"]
    assert found["high"] - found["low"] > 0.5


def test_seeds_that_agree_leave_the_variance_between_tasks():
    values = np.repeat([[1.0], [0.0], [1.0], [1.0], [0.0]], 3, axis=1)
    assert spread(values).error == pytest.approx(np.std([1, 0, 1, 1, 0], ddof=1) / 5**0.5)
    assert spread(values).df == pytest.approx(4)

    # Also where tasks vary hardly more than by chance.
    signs = {"+": 1.0, "-": -1.0, "0": 0.0}
    rows = "+++ +-- ++- +0- +++ 0+0 --+ -++ +++ --+".split()
    values = np.array([[signs[sign] for sign in row] for row in rows])
    assert values.sum(axis=0).tolist() == [3.0, 3.0, 3.0]
    found = spread(values)
    assert (found.mean, found.error, found.df) == pytest.approx((0.3, 0.03074**0.5, 9), rel=1e-3)
    assert 0.11 < found.p < 0.13


def test_a_seed_of_which_nothing_counts_is_no_seed():
    values = np.zeros((20, 3))
    values[:6, 0] = values[6:, 1] = 1
    values[:, 2] = NAN
    found = rate_interval(values)
    assert found == rate_interval(values[:, :2])
    assert (found["low"], found["high"]) == pytest.approx((0.011, 0.989), abs=5e-4)
    alike = np.ones((12, 3))
    alike[:, 2] = NAN
    assert paired(alike, np.zeros((12, 3))) == paired(alike[:, :2], np.zeros((12, 2)))
    assert rate_interval(np.full((4, 2), NAN))["low"] is None


def test_where_every_pair_differs_by_the_same_there_is_an_interval_still():
    found = paired(np.ones((12, 3)), np.zeros((12, 3)))
    assert (found["difference"], found["sd_seeds"], found["high"], found["p_tasks"]) == (1.0, 0.0, 1.0, 2 / 2**12)
    assert 0.3 < found["low"] < 0.6 and found["p"] < 0.001
    alike = paired(np.ones((4, 2)), np.ones((4, 2)))
    assert alike["low"] == pytest.approx(-alike["high"]) and alike["p"] == 1.0
    one = paired(np.array([[1.0]]), np.array([[0.0]]))
    assert (one["low"] < 0 < one["high"], one["p"]) == (True, None)
    assert late_minus_early(np.array([0, 0, 1, 1.0])) == {"difference": 1.0, "low": None, "high": None}


def test_passes_over_the_same_tasks_are_no_more_tasks_and_no_more_seeds():
    mine, other = np.ones((6, 2)), np.zeros((6, 2))
    found = paired(mine, other, seeds=[7, 7])
    assert (found["n_pairs"], found["n_paired_seeds"], found["p"], found["p_tasks"]) == (12, 1, None, 2 / 2**6)
    rng = np.random.default_rng(1)
    mine, other = (rng.integers(0, 2, size=(9, 3)).astype(float) for _ in range(2))
    once = paired(mine, other)
    twice = paired(np.hstack([mine, mine]), np.hstack([other, other]), seeds=[0, 1, 2, 0, 1, 2])
    for name in ("n_pairs", "won", "lost"):
        assert twice.pop(name) == 2 * once.pop(name)
    assert twice == pytest.approx(once)


@pytest.mark.parametrize("shape", [(1, 3), (1, 12), (40, 1)])
def test_with_nothing_but_seeds_or_one_seed_it_is_students_t(shape):
    from scipy.stats import ttest_1samp

    values = np.random.default_rng(3).normal(0.4, 1, size=shape)
    found, theirs = spread(values), ttest_1samp(values.ravel(), 0)
    assert found.p == pytest.approx(theirs.pvalue)
    assert found.interval == pytest.approx(tuple(theirs.confidence_interval()))


def test_two_ways_are_those_of_an_analysis_of_variance():
    import pandas as pd
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    rng = np.random.default_rng(5)
    values = rng.normal(size=(12, 1)) + rng.normal(size=(1, 5)) + rng.normal(size=(12, 5))
    long = pd.DataFrame({"y": values.ravel(), "task": np.repeat(range(12), 5), "seed": np.tile(range(5), 12)})
    table = anova_lm(ols("y ~ C(task) + C(seed)", long).fit())
    squares = table["sum_sq"] / table["df"]
    expected = (squares["C(task)"] + squares["C(seed)"] - squares["Residual"]) / 60
    assert spread(values).error ** 2 == pytest.approx(expected)


def test_a_pair_by_hand():
    mine = np.array([[1, 1], [1, 0], [0, NAN], [1, 1]])
    other = np.array([[0, 0], [1, 1], [0, 0], [0, 1]])
    found = paired(mine, other)
    assert (found["n_pairs"], found["won"], found["lost"]) == (7, 3, 1)
    assert found["difference"] == pytest.approx((2 / 4 + 0) / 2)
    assert found["sd_seeds"] == pytest.approx(np.std([0.5, 0], ddof=1))
    assert found["p_tasks"] == sign_flip([2, -1, 0, 1])
    assert paired(np.array([[NAN]]), np.array([[1.0]]))["p"] is None


def test_learning_curves_by_hand():
    assert cumulative(np.array([0, NAN, 1, 1.0])).tolist() == pytest.approx([0, 0, 1 / 2, 2 / 3])
    assert late_minus_early(np.array([0, 0, 1, 0, 1, 1.0]))["difference"] == pytest.approx(1 / 3)
    assert late_minus_early(np.array([0, 0, 0, 1, 1, 1.0]))["difference"] == 1.0
    assert late_minus_early(np.empty((0, 1)))["difference"] is None


def worlds(n_tasks, n_seeds, n_worlds=400):
    """Outcomes of two arms where tasks differ in hardness: (values, baseline), and the truth of their difference."""
    for number in range(n_worlds):
        rng = np.random.default_rng(number)
        hard = rng.beta(1.5, 1.5, size=(n_tasks, 1))
        better = np.clip(hard + rng.normal(0.1, 0.1, size=(n_tasks, 1)), 0, 1)
        shape = (n_tasks, n_seeds)
        yield (rng.uniform(size=shape) < better).astype(float), (rng.uniform(size=shape) < hard).astype(float)


@pytest.mark.parametrize(("n_tasks", "n_seeds"), [(60, 5), (140, 1)])
def test_the_intervals_hold_the_truth_as_often_as_they_say(n_tasks, n_seeds):
    """Tasks are drawn from a population whose rates are known by a very large sample of it."""
    large = next(worlds(400_000, 1, 1))
    truth, gain = large[0].mean(), large[0].mean() - large[1].mean()
    held = {"rate": 0, "difference": 0}
    for mine, other in worlds(n_tasks, n_seeds):
        rate, pair = rate_interval(mine), paired(mine, other)
        held["rate"] += rate["low"] <= truth <= rate["high"]
        held["difference"] += pair["low"] <= gain <= pair["high"]
    assert 0.92 <= held["rate"] / 400 <= 0.98
    assert 0.92 <= held["difference"] / 400 <= 0.98


@pytest.mark.parametrize(("n_tasks", "n_seeds", "sd"), [(40, 3, 0), (140, 3, 10), (500, 5, 5)])
def test_p_and_the_intervals_hold_their_level_where_each_seed_has_a_bank_of_its_own(n_tasks, n_seeds, sd):
    """benchmarks/null_simulation.py makes the whole table."""
    found = measured(500, n_tasks, n_seeds, sd / 100)
    assert found["null p"] <= 7
    assert 92.5 <= found["covered"] <= 98.5
    assert 92.5 <= found["covered, gain"] <= 98.5
    if sd == 10:
        assert found["null p_tasks"] > 20  # what a test over tasks alone would have called a difference


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ((100, 5, 1), "100 tasks x 5 seeds find a difference of 13 points or more with a chance of 80 %"),
        ((100, 5, 3), "points or more with a chance of 80 % after correction for 3 comparisons"),
        ((4, 2, 1), "4 tasks x 2 seeds find no difference, however large"),
        ((100, 1, 1), "with one seed nothing is tested; 100 tasks x 5 seeds find a difference of 13 points"),
    ],
)
def test_what_a_study_could_find_is_said_in_a_clause(size, said):
    assert said in could_find(*size)


def test_a_size_that_no_study_finds_is_not_called_100_points(capsys):
    """With 2 seeds of 5 tasks and banks 20 points apart, 100 points are 4.3 standard errors, and t must exceed 12.7.

    At a study's first look t of three seeds must exceed 140: 100 points are 1 / sqrt((.05^2 + .35 / 100) / 3) = 22.
    """
    power.main(["--tasks", "5", "--seeds", "2", "--sd", "20"])
    said = capsys.readouterr().out
    assert "With 5 tasks and 2 seeds, no difference, however large, is found" in said and "100.0" not in said
    assert re.search(r"2 +none +none  <- this study", said) and "likely to be missed" not in said
    assert "in points: none by 3 seeds, 19." in _could_find(Design().detectable(100, **GUESSES))
