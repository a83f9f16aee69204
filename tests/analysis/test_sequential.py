"""The sequential design: against published boundaries, studies simulated apart from it, and cases counted by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import norm, t

from analysis import stats
from analysis.sequential import Design, nominal_levels
from analysis.stats import paired, paired_worst
from analysis.verdict import comparison_outcome
from benchmarks.null_simulation import Size, breaking, outcomes
from benchmarks.sequential_simulation import fixed_seeds, looks, stopped
from core.errors import UserError

NAN = float("nan")
PLAN = Design(skewed=False)  # for which others have published boundaries; SKEWED differs in the simulated luck alone
SKEWED = Design()
NOTHING_BROKE = (np.zeros((60, 10), bool), np.zeros((60, 10), bool))


def grown(rng, gain, n_seeds, sd=0.05, n_tasks=60):
    return outcomes(rng, gain, Size(n_tasks=n_tasks, n_seeds=n_seeds, sd=sd))[:2]


def students(means):
    """Student's t after each seed, (seeds, studies), by numpy's own mean and variance."""
    n_seeds = range(2, len(means) + 1)
    with np.errstate(divide="ignore"):
        return {n: means[:n].mean(axis=0) / means[:n].std(axis=0, ddof=1) * n**0.5 for n in n_seeds}


def crossed(means, design):
    """The share of studies that have crossed a boundary by each look."""
    statistics, out, shares = students(means), np.zeros(means.shape[1], bool), {}
    for n in range(design.first, design.most + 1):
        out |= 2 * t.sf(np.abs(statistics[n]), n - 1) < design.nominal(n)
        shares[n] = out.mean()
    return shares


def of_means(*differences):
    """One task whose difference in each seed is given: no variance between tasks comes into its test."""
    return np.array([differences]), np.zeros((1, len(differences)))


def test_with_a_known_variance_the_boundaries_are_the_published_ones():
    """Five equal looks at the two-sided level of 5 %, O'Brien-Fleming-like spending."""
    found = -norm.ppf(np.array(nominal_levels(1, 5, 0.05, "normal")) / 2)
    assert found == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=0.015)


@pytest.mark.parametrize(("first", "most", "level"), [(3, 10, 0.05), (2, 6, 0.01), (4, 20, 0.1)])
def test_the_level_is_spent_as_planned_at_every_look(first, most, level):
    design, n = Design(first, most, level, skewed=False), 100_000
    shares = crossed(np.random.default_rng(1).normal(size=(most, n)), design)
    for n_seeds, share in shares.items():
        spent = 4 * norm.sf(norm.isf(level / 4) / (n_seeds / most) ** 0.5)
        assert abs(share - spent) < 0.0006 + 4 * (spent / n) ** 0.5, n_seeds


def test_the_level_holds_where_luck_is_skewed_and_the_boundaries_for_normal_luck_do_not():
    rng = np.random.default_rng(13)
    luck = 0.91**0.5 * (rng.exponential(size=(10, 100_000)) - 1) + 0.09**0.5 * rng.normal(size=(10, 100_000))
    for design in (SKEWED, Design(4, 8, 0.02)):
        assert crossed(luck, design)[design.most] == pytest.approx(design.level, rel=0.06)
    assert crossed(luck, PLAN)[10] > 0.09
    assert all(SKEWED.nominal(n) < PLAN.nominal(n) for n in range(3, 11))
    assert crossed(rng.normal(size=(10, 100_000)), SKEWED)[10] < 0.02


def test_a_study_with_one_look_is_the_fixed_one():
    for n_seeds in (2, 3, 7):
        assert Design(n_seeds, n_seeds, skewed=False).nominal(n_seeds) == pytest.approx(0.05)
    values, baseline = grown(np.random.default_rng(2), 0.1, 5)
    look, usual = Design(5, 5, skewed=False).look(values, baseline), paired(values, baseline)
    for name in ("difference", "low", "high", "p"):
        assert getattr(look, name) == pytest.approx(usual[name], abs=2e-3 if name == "p" else 1e-9)


def test_boundaries_open_with_the_seeds_and_with_the_level():
    for design in (PLAN, SKEWED, Design(2, 5), Design(3, 30, 0.01)):
        levels = [design.nominal(n) for n in range(design.first, design.most + 1)]
        assert all(0 < less < more < design.level for less, more in itertools.pairwise(levels))
        assert design.nominal(design.first - 1) == 0
    for n_seeds in range(3, 11):
        by_level = [Design(level=level, skewed=False).nominal(n_seeds) for level in (0.001, 0.01, 0.02, 0.05, 0.1, 0.3)]
        assert by_level == sorted(set(by_level))


def test_a_boundary_is_crossed_where_p_is_below_the_level_and_where_the_interval_leaves_out_0():
    rng, seen = np.random.default_rng(3), set()
    for gain in (0.0, 0.1, -0.2, 0.4):
        for _ in range(12):
            values, baseline = grown(rng, gain, 10)
            for n in range(3, 11):
                look, usual = PLAN.look(values[:, :n], baseline[:, :n]), paired(values[:, :n], baseline[:, :n])
                assert look.nominal_p == usual["p"]
                assert look.difference == usual["difference"]
                assert look.low <= look.difference <= look.high
                crosses = usual["p"] < PLAN.nominal(n)
                assert crosses == (look.p < 0.05) == (not look.low <= 0 <= look.high) == (look.outcome == "clear")
                assert look.p > look.nominal_p or look.p == 1
                seen.add((n, crosses))
    assert len(seen) >= 13  # both at almost every look


@pytest.mark.parametrize(
    "differences", [(0.03, 0.05, 0.02, 0.06), (0.01, 0.07, -0.02, 0.06, 0.05, 0.03, -0.02, 0.06, 0.01)]
)
def test_the_repeated_p_is_the_level_at_which_the_boundary_would_be_crossed(differences):
    values, baseline = of_means(*differences)
    look, n = PLAN.look(values, baseline), len(differences)
    less, more = (Design(level=look.p * by, skewed=False).nominal(n) for by in (0.96, 1.04))
    assert less < look.nominal_p < more


def test_a_first_look_by_hand():
    """t = 0.02 / (0.01 / sqrt 3) = 3.464 of 2 degrees of freedom, of which p = 1 - t / sqrt(t^2 + 2) and t = p^-1/2."""
    look = PLAN.look(*of_means(0.01, 0.02, 0.03))
    assert look.nominal_p == pytest.approx(1 - 12**0.5 / 14**0.5)
    assert PLAN.nominal(3) == pytest.approx(4 * norm.sf(2.241403 / 0.3**0.5), rel=1e-4)  # 0.0000855
    assert (look.low, look.high) == pytest.approx((0.02 - 0.6245, 0.02 + 0.6245), abs=2e-3)
    assert look.p == pytest.approx(4 * norm.sf(norm.isf(look.nominal_p / 4) * 0.3**0.5), abs=0.005)  # 0.507
    assert (look.verdict, look.outcome) == ("same", "go on")


def test_looking_at_every_seed_holds_the_level_that_looking_without_correction_does_not():
    rng, n = np.random.default_rng(4), 300
    seen = [looks((*grown(rng, 0.0, 10), *NOTHING_BROKE), PLAN) for _ in range(n)]
    assert sum(any(look.outcome == "clear" for look in each) for each in seen) / n < 0.07
    assert sum(any(look.nominal_p < 0.05 for look in each) for each in seen) / n > 0.11


@pytest.mark.parametrize(
    "differences",
    [
        (0.02, 0.09, -0.03),
        (-0.03, 0.0, -0.05, 0.02, -0.04, -0.06, -0.02),
        (0.2, 0.4, 0.1, 0.5, -0.1),  # a mean above the planned effect
    ],
)
def test_conditional_power_is_the_share_of_continued_studies_that_cross(differences):
    so_far = np.array(differences)
    look, n = PLAN.look(*of_means(*so_far)), len(so_far)
    effect = np.copysign(max(PLAN.effect, abs(so_far.mean())), so_far.mean())
    to_come = np.random.default_rng(5).normal(effect, so_far.std(ddof=1), (10 - n, 20_000))
    means = np.vstack([np.repeat(so_far[:, None], 20_000, axis=1), to_come])
    assert look.conditional_power == pytest.approx(crossed(means, Later(n + 1))[10], abs=0.04)


def test_a_gain_far_above_the_planned_one_is_not_futile():
    """15 of 100 tasks against 87: seeds to come that gained only the planned 10 points would make it look hopeless.

    t of three seeds is .72 / (.05 / sqrt 3) = 24.9, under the boundary of 100 or more. Seven more seeds like these
    cross the next one, of three degrees of freedom, at once.
    """
    look = Design().look(*of_means(0.67, 0.72, 0.77))
    assert (look.outcome, look.difference, look.worst_seed) == ("go on", pytest.approx(0.72), pytest.approx(0.67))
    assert look.conditional_power > 0.9
    assert Design().look(*of_means(-0.67, -0.72, -0.77)).worst_seed == pytest.approx(-0.67)  # nearest to 0


class Later:
    """The looks of PLAN from `first` on."""

    def __init__(self, first):
        self.first, self.most, self.nominal = first, PLAN.most, PLAN.nominal


def test_more_seeds_are_futile_where_the_mean_is_near_0_and_the_end_near():
    steady = of_means(*(0.01, -0.01, 0.02, -0.02, 0.01, -0.01, 0.0, 0.01))
    look = Design(effect=0.005, skewed=False).look(*steady)
    assert look.conditional_power < 0.1
    assert look.outcome == "futile"
    powers = [Design(effect=effect).look(*steady).conditional_power for effect in (0.005, 0.02, 0.05, 0.2)]
    assert powers == sorted(powers)
    assert Design(effect=0.05).look(*of_means(0.01, -0.01, 0.02, 0.0)).outcome == "go on"


def test_a_study_ends_where_no_seed_is_left():
    values, baseline = grown(np.random.default_rng(6), 0.0, 10)
    look = PLAN.look(values, baseline)
    assert (look.outcome, look.conditional_power, look.verdict) == ("most", None, "same")
    assert PLAN.look(values, baseline, seeds=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4]).n_seeds == 5  # two passes a seed
    assert PLAN.look(*of_means(0.01, 0.02, 0.03), n_run=10).outcome == "most"  # seven repeated these word for word
    values[:, 4] = NAN  # a seed that broke is not made good for
    look = PLAN.look(values, baseline)
    assert (look.outcome, look.n_seeds, look.conditional_power) == ("most", 9, None)


@pytest.mark.parametrize(("gain", "verdict"), [(0.4, "better"), (-0.4, "worse")])
def test_it_is_clear_in_both_directions(gain, verdict):
    values, baseline = grown(np.random.default_rng(7), gain, 6)
    look = PLAN.look(values, baseline)
    assert (look.outcome, look.verdict) == ("clear", verdict)
    assert look.difference * gain > 0
    assert PLAN.look(values, baseline, alike=0.5).verdict == "untested"  # such seeds share their bank's luck
    assert PLAN.look(values, baseline, alike=0.5).outcome == "go on"


def test_what_broke_decides_nothing():
    rng, undecided = np.random.default_rng(8), 0
    for _ in range(12):
        values, baseline, broke, baseline_broke = breaking(rng, size=Size(n_seeds=8))
        look = PLAN.look(values, baseline, broke=broke, baseline_broke=baseline_broke)
        worst = paired_worst(values, baseline, broke, baseline_broke)
        assert look.difference_worst == worst["difference"]
        row = {"p_holm": look.p, "p_worst_holm": look.p_worst, "difference": look.difference}
        assert look.verdict == comparison_outcome(row | {"difference_worst": look.difference_worst})
        assert PLAN.look(values, baseline).outcome == "clear" or look.p >= 0.05
        assert (look.outcome == "clear") == (look.verdict in ("better", "worse"))
        undecided += look.verdict == "undecided"
        one = PLAN.look(values, baseline, broke=broke)
        assert one == look  # nothing of the baseline broke
    assert undecided >= 5


def test_a_study_before_its_first_look_or_without_a_pair_has_no_test():
    values, baseline = grown(np.random.default_rng(9), 0.2, 4)
    for n in (0, 1, 2):
        look = PLAN.look(values[:, :n], baseline[:, :n])
        assert (look.n_seeds, look.p, look.low, look.verdict, look.outcome) == (n, None, None, "untested", "go on")
        assert (look.difference is None, look.nominal_p is None) == (n == 0, n < 2)
    assert PLAN.look(values[:, 0], baseline[:, 0]).n_seeds == 1  # one column, without its second dimension
    nothing = PLAN.look(np.full((5, 4), NAN), np.zeros((5, 4)))
    assert (nothing.n_seeds, nothing.difference, nothing.outcome) == (0, None, "go on")
    assert PLAN.look(np.full((5, 10), NAN), np.zeros((5, 10))).outcome == "most"


def test_broken_tasks_drop_pairs_and_a_short_last_seed_is_a_seed():
    values, baseline = grown(np.random.default_rng(10), 0.2, 5)
    values[20:, 4], baseline[3, 1] = NAN, NAN
    look, usual = PLAN.look(values, baseline), paired(values, baseline)
    assert (look.n_seeds, look.difference, look.nominal_p) == (5, usual["difference"], usual["p"])
    baseline[:, 2] = NAN
    assert PLAN.look(values, baseline).n_seeds == 4


@pytest.mark.parametrize("difference", [0.0, 1.0, -1.0])
def test_pairs_that_all_differ_alike(difference):
    look = PLAN.look(np.full((40, 6), max(difference, 0.0)), np.full((40, 6), max(-difference, 0.0)))
    assert look.difference == difference
    assert look.outcome == ("clear" if difference else "futile")
    assert look.verdict == {0: "same", 1: "better", -1: "worse"}[difference]
    assert -1 <= look.low <= look.high <= 1


def test_the_detectable_difference_is_found_in_eight_of_ten_simulated_studies():
    about = {"n_tasks": 100, "rate": 0.5, "sd": 0.05, "alike": 0.3}
    error = (0.05**2 + 2 * 0.25 * 0.7 / 100) ** 0.5
    found = dict(PLAN.detectable(**about))
    assert list(found) == list(range(3, 11))
    draws = np.random.default_rng(11).normal(size=(10, 50_000))
    for n in (5, 7, 10):
        assert crossed(found[n] + error * draws, PLAN)[n] == pytest.approx(0.8, abs=0.01)
    assert found[10] <= found[9] <= found[8]
    assert 1 <= found[10] / stats.detectable(n_seeds=10, **about) < 1.1
    single = Design(6, 6, skewed=False).detectable(**about)
    assert single == [(6, pytest.approx(stats.detectable(n_seeds=6, **about), rel=0.02))]
    assert PLAN.detectable(n_tasks=10, rate=0.5, sd=0.3, alike=0.0)[0] == (3, 1.0)
    assert PLAN.detectable(n_tasks=10, rate=0.0, sd=0.0, alike=0.0)[0] == (3, 0.0)


@pytest.mark.parametrize(
    "bad", [{"first": 1}, {"first": 5, "most": 4}, {"level": 0.0}, {"level": 1.0}, {"effect": 0.0}, {"effect": 1.5}]
)
def test_a_design_that_is_none_is_refused(bad):
    with pytest.raises(UserError, match=r"a study from|the level of a study"):
        Design(**bad)


def test_the_benchmark_stops_at_the_first_look_that_does_not_go_on_and_counts_the_seeds_of_a_fixed_design():
    seen = looks((*grown(np.random.default_rng(12), 0.4, 10), *NOTHING_BROKE), PLAN)
    assert len(seen) == 8
    assert stopped(seen) == next(look for look in seen if look.outcome == "clear")
    assert fixed_seeds(0.5, {2: 0.2, 3: 0.4, 4: 0.6}) == pytest.approx(3.5)
    assert fixed_seeds(0.1, {2: 0.2}) == pytest.approx(1.5)
    assert fixed_seeds(0.9, {2: 0.2, 3: 0.4}) == 3
