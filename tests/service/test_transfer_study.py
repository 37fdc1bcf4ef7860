"""What is left out is predicted, and the error is said."""

import math
from pathlib import Path

import pytest

from kb.errors import ConfigError, SourceUnavailableError
from kb.prediction import Measurements, Sample
from kb.prediction.carrying import carry
from kb.prediction.constants import FILE, Constants, read, shipped, written
from kb.prediction.machine import machine_of
from kb.service.transfer_fitting import START, fit, pairs_of, quantile
from kb.service.transfer_loss import carried, loss_of
from kb.service.transfer_reading import calibration, measurements
from kb.service.transfer_study import ALL, Figures, Settings, Study, predicted_and_measured, set_for, study

DATA = Path(__file__).resolve().parents[1] / "data" / "latencies"


@pytest.fixture(scope="module")
def samples() -> tuple[Sample, ...]:
    return measurements([DATA])[0]


@pytest.fixture(scope="module")
def found(samples: tuple[Sample, ...]) -> Study:
    return study(samples, Settings(calibrate=4))[0]


def rows(found: Study, case: str) -> list[Figures]:
    return [one for one in found.figures if one.case == case]


def test_every_case_has_its_rows(found: Study) -> None:
    cases = {one.case for one in found.figures}
    assert {"same_device", "sibling", "other_memory", "generations", "calibrated generations"} <= cases
    assert {one.family for one in found.figures} == {"gemm", "generation_attention"}
    assert any(one.source == ALL for one in found.figures)
    assert found.measurements == 230


def test_carried_times_are_near_where_the_same_latency_is_not(found: Study) -> None:
    summary = next(one for one in found.summaries if one.case == "generations" and one.source == "every")
    assert len(summary.rules) == 3
    assert summary.median < 25
    assert summary.median < summary.rules[0][0] / 2


def test_measurements_on_the_target_help_where_peaks_do_not_tell(samples: tuple[Sample, ...]) -> None:
    slower = [one.with_(latency_us=1.4 * one.latency_us) if one.device == "NVIDIA L40S" else one for one in samples]
    found = study(slower, Settings(calibrate=4))[0]
    for source in ("H100-SXM", "B200-HGX"):
        by_case = {one.case: one for one in found.summaries if (one.source, one.target) == (source, "L40S")}
        assert by_case["calibrated generations"].median < by_case["generations"].median / 2


def test_all_other_devices_and_a_few_measurements_are_a_row_of_their_own(found: Study) -> None:
    by_case = {one.case: one for one in found.summaries if one.source == "every"}
    with_own = by_case[f"calibrated generations, {ALL}"]
    assert with_own.n > 20
    assert with_own.median < by_case[f"generations, {ALL}"].median


def test_measurements_on_the_target_narrow_the_interval(found: Study) -> None:
    by_case = {one.case: one for one in found.summaries if one.source == "every"}
    assert by_case["calibrated generations"].width_median < by_case["generations"].width_median


def test_figures_are_figures(found: Study) -> None:
    for one in (*found.figures, *found.summaries):
        assert 0 <= one.median <= one.p90
        assert 0 <= one.coverage <= 100
        assert one.width_median >= 1
        assert one.n >= 5


def test_constants_of_a_study_never_saw_the_target(found: Study) -> None:
    for target, devices in found.constants:
        assert target not in devices


def test_each_set_of_shipped_constants_lacks_its_design() -> None:
    sets = read(FILE)
    assert shipped() == sets["all"]
    for name in ("NVIDIA B200", "NVIDIA H100 80GB HBM3", "NVIDIA L40S", "NVIDIA GB200", "NVIDIA H200"):
        machine = machine_of(name)
        assert machine is not None
        chosen = set_for(machine, sets)
        assert chosen != "all"
        assert machine.name not in sets[chosen].devices
        assert machine.name in sets["all"].devices


def test_what_cannot_be_predicted_is_counted_by_reason(samples: tuple[Sample, ...]) -> None:
    renamed = [one.with_(kernel="other") if one.device == "NVIDIA B200" else one for one in samples]
    found = study(renamed, Settings())[0]
    refused = {(source, target): (why, n) for source, target, why, n in found.refused}
    assert refused["H100-SXM", "B200-HGX"] == ("other_kernel", 46)


def test_faults_are_counted_and_unknown_devices_named(samples: tuple[Sample, ...]) -> None:
    broken = [*samples, samples[0].with_(latency_us=0.0), samples[0].with_(device="NVIDIA Z9")]
    found = study(broken, Settings())[0]
    assert (samples[0].device, "invalid", "gemm", 1) in found.flagged
    assert found.unknown == (("NVIDIA Z9", 1),)


def test_given_records_calibrate_and_are_not_scored(samples: tuple[Sample, ...]) -> None:
    given = tuple(one for one in samples if one.device == "NVIDIA L40S" and one.operator == "gemm")[::4]
    found = study(samples, Settings(anchors=given))[0]
    (row,) = [one for one in found.figures if one.case.startswith("calibrated") and one.source == "H100-SXM"]
    assert row.target == "L40S"
    plain = next(
        one for one in found.figures if (one.case, one.source, one.target) == ("generations", "H100-SXM", "L40S")
    )
    assert row.n == 26 - len(given)
    assert plain.family == "gemm"


def test_pairs_for_a_plot(samples: tuple[Sample, ...]) -> None:
    scored = study(samples, Settings())[1]
    pairs = predicted_and_measured(scored, "sibling")
    assert {family for family, *_ in pairs} == {"gemm", "generation_attention"}
    assert all(low <= predicted <= high and measured > 0 for _, measured, predicted, low, high in pairs)
    assert predicted_and_measured(scored, "nothing of the kind") == []


def test_one_row_is_a_study_of_nothing(samples: tuple[Sample, ...]) -> None:
    found = study(samples[:1], Settings())[0]
    assert found.figures == ()


def test_the_vectorised_work_model_is_the_scalar_one(samples: tuple[Sample, ...]) -> None:
    pairs = pairs_of(Measurements(samples, START))
    for shape in (START, shipped().shape):
        for one, us in zip(pairs, carried(pairs)(shape), strict=True):
            alone = carry(one.source_us, one.work, one.source, one.target, slope=one.slope, shape=shape)
            assert us == pytest.approx(alone.us, rel=1e-9)


def test_fitting_lowers_the_error_and_writes_what_it_reads(samples: tuple[Sample, ...], tmp_path: Path) -> None:
    sets = fit(samples, rounds=6)
    loss = loss_of(pairs_of(Measurements(samples, START)))
    assert loss(sets["all"].shape) < loss(START)
    file = tmp_path / "constants.json"
    file.write_text(written(sets, provenance={}), encoding="utf-8")
    again = read(file)
    assert set(again) == {"all", "sm_10", "sm_89", "sm_90"}
    assert "B200-HGX" not in again["sm_10"].devices
    assert "GB200" not in again["sm_10"].devices
    assert rounded(again["all"]) == rounded(sets["all"])
    spread = sets["all"].spread("generations", "gemm")
    assert spread.low < 0 < spread.high or spread.low < spread.high


def test_nothing_in_common_cannot_be_fitted(samples: tuple[Sample, ...]) -> None:
    for alone in (samples[:1], [one for one in samples if one.device == "NVIDIA L40S"], ()):
        with pytest.raises(ConfigError, match="nothing to fit"):
            fit(alone)


def rounded(one: Constants) -> list[float]:
    return [float(f"{value:.4g}") for value in one.shape.__dict__.values()]


def test_what_calibrate_takes(tmp_path: Path) -> None:
    assert calibration(None) == Settings()
    assert calibration("8").calibrate == 8
    assert len(calibration(str(DATA / "gemm.csv")).anchors) == 130
    for wrong in ("0", "100000", str(tmp_path / "nowhere")):
        with pytest.raises(ConfigError):
            calibration(wrong)
    with pytest.raises(SourceUnavailableError):
        calibration(str(tmp_path))


def test_quantiles_lie_between_their_neighbours() -> None:
    assert quantile([1.0], 0.9) == 1.0
    assert quantile([0.0, 1.0, 2.0], 0.5) == 1.0
    assert math.isclose(quantile([0.0, 1.0], 0.9), 0.9)
