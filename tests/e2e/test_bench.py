"""What the bench makes of its figures. Nothing is measured here."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import summary  # noqa: E402

MODEL = {"shape": "qwen3-0.6b", "type": "F16", "ctx": 2048}


def restore_point(remaining, ttft_ms, mode="full"):
    return MODEL | {"kv": "exact", "mode": mode, "remaining": remaining, "ttft_ms": ttft_ms, "warm_ms": 100, "n": 3}


def stock_point(baseline, ttft_ms, **more):
    return MODEL | {"kv": "exact", "baseline": baseline, "remaining": 0, "ttft_ms": ttft_ms, "n": 3} | more


def baselines(restore, stock):
    sections = {"restore": dict(enumerate(restore)), "baselines": dict(enumerate(stock))}
    return {(p["baseline"], p["ctx"], p["remaining"]): p for p in summary.baselines(sections)}


@pytest.mark.quick
def test_ending_the_program_stands_beside_every_level():
    restore = [restore_point(level, 1000 - level) for level in (0, 25, 50, 75, 100)] + [restore_point(0, 5000, mode="none")]
    rows = baselines(restore, [stock_point("slot-restore", 2000), stock_point("cold-start", 9000)])
    for level in (0, 25, 50, 75):
        for name, ttft in (("slot-restore", 2000), ("cold-start", 9000)):
            row = rows[name, 2048, level]
            assert (row["ttft_ms"], row["mz_ttft_ms"]) == (ttft, 1000 - level)
            assert row["speedup"] == ttft / (1000 - level)
    assert ("slot-restore", 2048, 100) not in rows      # nothing was evicted: never-evicted says that


@pytest.mark.quick
def test_other_baselines_stand_beside_their_own_level():
    restore = [restore_point(level, 1000 - level) for level in (0, 50)]
    stock = [stock_point("os-paging-file", 3000), stock_point("partial-offload", 1500, remaining=50)]
    rows = baselines(restore, stock)
    assert {key for key in rows if key[0] != "never-evicted"} == {("os-paging-file", 2048, 0), ("partial-offload", 2048, 50)}
    assert rows["partial-offload", 2048, 50]["mz_ttft_ms"] == 950


@pytest.mark.quick
def test_a_baseline_without_figures_of_ours_is_kept():
    rows = baselines([restore_point(0, 900)], [stock_point("cold-start", 9000, ctx=8192)])
    assert "mz_ttft_ms" not in rows["cold-start", 8192, 0]
