"""Licenses: what forbids a use, and what does not."""

import pytest

from kb.planning.licensing import refusal, unread


@pytest.mark.parametrize("license_", ["Apache-2.0", "MIT", "NCSA", "BSL-1.0", "GPL-3.0-only", "CC-BY-4.0"])
def test_licenses_that_let_anybody_use_it_refuse_nobody(license_: str) -> None:
    assert refusal(license_, (), use="commercial") is None


@pytest.mark.parametrize(
    "license_",
    [
        "CC-BY-NC-4.0", "CC-BY-NC-SA-4.0", "PolyForm-Noncommercial-1.0.0", "LicenseRef-Acme-Research-Only", "BUSL-1.1",
        "LicenseRef-Research-Reciprocity", "Apache-2.0 AND CC-BY-NC-4.0", "CC-BY-NC-4.0 WITH Some-exception",
    ],
)  # fmt: skip
def test_non_commercial_licenses_refuse_commercial_use_alone(license_: str) -> None:
    assert "commercial" in str(refusal(license_, (), use="commercial"))
    assert refusal(license_, (), use="research") is None


@pytest.mark.parametrize("license_", ["NONE", "NOASSERTION", "LicenseRef-unknown", "MIT AND NONE"])
def test_no_license_allows_nobody(license_: str) -> None:
    assert refusal(license_, (), use="research") is not None


def test_either_side_of_an_or_will_do() -> None:
    assert refusal("CC-BY-NC-4.0 OR MIT", (), use="commercial") is None
    assert refusal("CC-BY-NC-4.0 OR BUSL-1.1", (), use="commercial") is not None
    assert refusal("MIT AND CC-BY-NC-4.0 OR NONE", (), use="commercial") is not None


def test_a_sentence_that_travels_with_an_entry_counts_too() -> None:
    said = ("For non-commercial research only.",)
    assert refusal("MIT", said, use="commercial") == "restriction: For non-commercial research only."
    assert refusal("MIT", said, use="research") is None
    assert refusal("MIT", ("Whoever passes it on must name the authors.",), use="commercial") is None


def test_an_identifier_of_ones_own_has_to_be_read() -> None:
    assert unread("LicenseRef-SAM")
    assert not unread("MIT")
