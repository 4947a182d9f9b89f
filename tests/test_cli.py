"""The command line: what it prints, what it keeps, and what it says to a mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from commands import call, write
from gpexplorer import Spec, Store, __version__, data, kernels, load_posterior, methods
from gpexplorer.cli import files, listings
from gpexplorer.cli.output import format_duration
from gpexplorer.cli.run_commands import progress_line
from gpexplorer.errors import DataError, KernelError
from gpexplorer.methods.base import registry
from gpexplorer.runs.studies.sweep import read_table
from toy_method import ROWS, Toy


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(registry, "toy", Toy)
    monkeypatch.chdir(tmp_path)


def test_run_prints_the_scores_and_keeps_every_step(capsys: pytest.CaptureFixture[str]):
    code = call("run", write(budget={"steps": 12}), "--out", "store")

    printed = capsys.readouterr()
    spec = Spec("toy", data=ROWS)
    want = spec.open()
    want.finish(steps=12)
    assert code == 0
    assert "budget: The budget of 12 steps is used up" in printed.out
    assert f"smse         {want.scores()['smse']:.6g}\n" in printed.out
    assert f"kept in {Path('store') / spec.key()}" in printed.out
    assert len(Store("store").kept(spec.key()).records) == 13


def test_run_continues_where_it_stopped(capsys: pytest.CaptureFixture[str]):
    name = write(budget={"steps": 3})
    assert call("run", name) == 0

    assert call("run", name, "--set", "budget.steps=5") == 0

    assert "Going on from step 3." in capsys.readouterr().err
    assert [len(Store("runs-store").kept(key).records) for key in Store("runs-store").names()] == [6]


@pytest.mark.parametrize("steps", [4, 0])
def test_a_run_of_which_the_store_has_more_prints_the_step_of_its_own_budget(
    steps: int, capsys: pytest.CaptureFixture[str]
):
    fields, X = {"method": "cholqr", "settings": {"num_inducing": 4, "num_pivots": 4}}, np.full((1, 10), 0.3)
    short = ["run", write(budget={"steps": steps}, **fields), "--json", "--model", "model.safetensors"]
    assert call(*short, "--out", "fresh", "--quiet") == 0
    want, mean = json.loads(capsys.readouterr().out), load_posterior("model.safetensors")(X).mean
    assert call("run", write("long.json", budget={"steps": 6}, **fields)) == 0
    [name] = Store("runs-store").names()
    journal = Path("runs-store", name, "journal.jsonl").read_bytes()

    capsys.readouterr()
    assert call(*short) == 0

    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result == want | {"kept_in": result["kept_in"], "seconds": result["seconds"]}
    assert result["steps"] == steps
    assert f"The store has 6 steps. The budget ends the run at step {steps}, shown here." in printed.err
    assert torch.equal(load_posterior("model.safetensors")(X).mean, mean)
    assert Path("runs-store", name, "journal.jsonl").read_bytes() == journal


def test_set_changes_fields_entries_and_settings():
    changes = ["seed=3", "block=7", "settings.shrink=0.5", "budget.steps=1", "kernel=se", "data.n=40"]

    code = call("run", write(), *(word for change in changes for word in ("--set", change)))

    [name] = Store("runs-store").names()
    spec = Store("runs-store").spec(name)
    assert code == 0
    assert (spec.seed, spec.kernel, spec.budget, spec.data) == (3, "se", {"steps": 1}, {**ROWS, "n": 40})
    assert (spec.settings["block"], spec.settings["shrink"]) == (7, 0.5)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "nowhere.json"], "Error: Cannot read the spec 'nowhere.json': No such file"),
        (["run", "spec.json", "--set", "blok=3"], "did you mean 'block'?"),
        (["run", "spec.json", "--set", 'split={"test": 0.5, "test": 0.2}'], "says 'test' twice"),
        (["run", "spec.json", "--set", "block"], "names no value: write key=value"),
        (["run", "spec.json", "--set", "kernel.theta=1"], "which has no entries"),
        (["run", "spec.json", "--set", "data=no-such-set"], "Error: "),
        (["run", "spec.json", "--set", "block=NaN"], "toy's block is nan"),
        (["run", "spec.json", "--target-transform", "log 3"], "target_transform is 'log 3'; give"),
        (["run", "spec.json", "--target-transform", "yeo-johnson 5"], "its number is not between 0 and 2"),
        (["run", "spec.json", "--target-transform", "7"], "target_transform is 7; give"),
        (["run", "spec.json", "--set", "target_transform=box-cox"], "target_transform is 'box-cox'; give"),
        (["run", "spec.json", "--target-transform", "log", "--set", "data=hypercube"], "choose 'yeo-johnson', or"),
        (["run", "spec.json", "--out", "spec.json"], "The store cannot keep a run in"),
        (["methods", "cholrq"], "did you mean 'cholqr'?"),
        (["data", "fetch", "kin40"], "kin40k"),
        (["serve", "--port", "70000"], "--port"),
        (["serve", "--port", "1", "--store", "/dev/null"], "Runs cannot be kept in /dev/null (it is no directory)"),
        (["run", "spec.json", "--set", "seed=" + "[" * 50_000], "seed is '[[["),
        (["run", "spec.json", "--set", "seed=" + "[" * 100_000], "longer than 100000 characters"),
        (["run", "rows.csv"], "rows.csv: The spec is not JSON"),
        (["export", "rows.csv", "--steps", "steps.csv"], "has no run 'rows.csv'; it has none"),
        (["export", ".", "--steps", "steps.xlsx"], "choose another --steps, whose name ends in .csv or"),
        (["run", "pipe"], "Nothing arrived in the pipe 'pipe' within 0.1 s"),
        (["run", "/dev/zero"], "longer than 100000 characters"),
        (["run", "a\0b"], "Cannot read the spec 'a\\x00b': "),  # Python words the reason
    ],
)
def test_a_mistake_is_answered_with_a_sentence(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    write(kernel="se")
    os.mkfifo("pipe")
    Path("rows.csv").write_text("x,y\n1,2\n")
    monkeypatch.setattr(files, "PIPE_SECONDS", 0.1)

    code = call(*arguments)

    error = capsys.readouterr().err
    assert code == 2
    assert expected in error
    assert "Traceback" not in error


def test_a_method_that_fails_is_a_sentence_and_exit_code_one(capsys: pytest.CaptureFixture[str]):
    code = call("run", write(settings={"fault": "unknown"}))

    printed = capsys.readouterr()
    assert code == 1
    assert "failed: An unexpected RuntimeError ended the method at step 3" in printed.err
    assert "2 steps" in printed.out


def test_a_run_that_diverges_ends_with_exit_code_three(capsys: pytest.CaptureFixture[str]):
    wild = {"batch_size": 8, "optimiser": "sgd", "rate": 1e4}
    code = call("run", write(method="scgd", data={"name": "hypercube", "n": 60, "d": 2}, settings=wild))

    assert code == 3
    assert "diverged: A parameter reached its bound" in capsys.readouterr().out


def test_a_sweep_on_a_cluster_without_dask_is_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "distributed", None)
    Path("grid.json").write_text(
        json.dumps(
            {"spec": {"gpexplorer": 1, "method": "toy", "data": ROWS, "budget": {"steps": 2}}, "over": {"seed": [0, 1]}}
        )
    )

    assert call("sweep", "grid.json", "--scheduler", "tcp://localhost:8786") == 2
    assert "Dask is not installed: pip install gpexplorer[cluster]" in capsys.readouterr().err


def test_methods_prints_each_setting_with_its_bounds(capsys: pytest.CaptureFixture[str]):
    assert call("methods", "cholqr") == 0

    printed = capsys.readouterr().out
    kind = methods["cholqr"]
    assert f"cholqr: {kind.title} ({kind.family})" in printed
    assert "num_inducing = 0: a whole number of at least 0." in printed
    assert all(f"  {name} = " in printed for name in kind.param if name != "name")
    assert "toy" not in printed

    assert call("methods") == 0
    listed = capsys.readouterr().out
    assert [row.partition(":")[0] for row in listed.splitlines() if row[:1].strip()] == sorted(registry)


def test_lists_are_json_for_programs(capsys: pytest.CaptureFixture[str]):
    assert call("methods", "cholqr", "--json") == 0
    [method] = json.loads(capsys.readouterr().out)
    assert {setting["name"] for setting in method["settings"]} == set(methods["cholqr"].param) - {"name"}
    assert call("data", "--json") == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == set(data.available().index)
    assert call("kernels", "--json") == 0
    listed = {row["key"]: row["hyperparameters"] for row in json.loads(capsys.readouterr().out)}
    assert listed["se-ard"] == ["sd", "lengthscale 1", "lengthscale 2", "noise"]
    assert call("kernels") == 0
    assert "Matérn 5/2, ARD" in capsys.readouterr().out


def test_lists_and_completions_import_no_torch_once_they_are_kept(tmp_path: Path):
    program = (
        "import sys; from gpexplorer.cli import listings; print(listings.complete_method('chol'));"
        "print('torch' in sys.modules)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    printed = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [run.stdout.splitlines()[0] for run in printed] == ["['cholesky', 'cholqr']"] * 2
    assert printed[1].stdout.splitlines()[1] == "False"


def test_a_damaged_catalogue_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listings, "_path", lambda: tmp_path / "catalogue-0.json")
    monkeypatch.delitem(sys.modules, "gpexplorer.methods.base")
    (tmp_path / "catalogue-0.json").write_text('{"methods": [')
    assert listings.keys("kernels") == sorted(kernels.available())
    assert json.loads((tmp_path / "catalogue-0.json").read_text())["kernels"]


def test_schema_accepts_what_a_spec_is_and_refuses_what_it_is_not(capsys: pytest.CaptureFixture[str]):
    import jsonschema  # takes 1.5 s, which each process that only looks for tests would pay

    assert call("schema") == 0
    check = jsonschema.Draft202012Validator(json.loads(capsys.readouterr().out))
    for key in set(methods) - {"toy"}:
        assert check.is_valid(json.loads(Spec(key).to_json())), key
    for transform in ("log", "yeo-johnson", "yeo-johnson 0.5", "yeo-johnson 0", "yeo-johnson 2", "yeo-johnson 1e-05"):
        assert check.is_valid(json.loads(Spec("cholqr", target_transform=transform).to_json())), transform
    of_kernel = [
        ({"values": {"lp.period": 1.0}}, {"values": {"lp.period": 0.0}}),
        ({"fixed": ["noise", "*.sd"]}, {"fixed": [3]}),
        ({"fixed": "noise"}, {"fixed": {"noise": True}}),
        ({"bounds": {"noise": [0.1, None]}}, {"bounds": {"noise": [0.1]}}),
        ({"tied": [["lengthscale", "width"]]}, {"tied": "lengthscale"}),
        ({"priors": {"noise": "gamma(2, 2)"}}, {"priors": {"noise": "gamma 2 2"}}),
        ({"start": "one"}, {"begin": "one"}),
    ]
    for taken, not_taken in of_kernel:
        assert check.is_valid(json.loads(Spec("ml", kernel={"name": "lp", **taken}).to_json())), taken
        assert check.is_valid({"method": "ml", "kernel": {"name": "lp", **taken}}), taken
        assert not check.is_valid({"method": "ml", "kernel": {"name": "lp", **not_taken}}), not_taken
    for start in ("left", [0, 5, 9], [[0.5], [2.0]]):
        assert check.is_valid(json.loads(Spec("sgpr", {"start": start}).to_json())), start
    assert not check.is_valid({"method": "sgpr", "settings": {"start": "somewhere"}})
    refused = [
        {"method": "cholqr", "target_transform": "box-cox"}, {"method": "cholqr", "target_transform": "yeo-johnson 5"},
        {"method": "cholqr", "target_transform": "log 3"}, {"method": "cholqr", "target_transform": 7},
        {"method": "cholrq"}, {"method": "cholqr", "settings": {"num_pivot": 3}}, {"settings": {}},
        {"method": "cholqr", "settings": {"num_pivots": 0}}, {"method": "cholqr", "budget": {"hours": 1}},
    ]  # fmt: skip
    assert not [fields for fields in refused if check.is_valid(fields)]


def test_costs_of_many_rows_are_formulas_of_every_method(capsys: pytest.CaptureFixture[str]):
    assert call("costs", "--rows", "10000000", "--json") == 0
    entries = {entry["key"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert set(methods) - {"toy"} <= set(entries)
    assert entries["ml"]["memory"] > 1e14 > 1e9 > entries["grief"]["memory"]
    assert entries["ml"]["largest array"] == "n x n matrices"
    assert call("costs", "--rows", "1000") == 0
    assert "largest array" in capsys.readouterr().out


def test_a_result_is_json_for_programs_and_quiet_prints_no_progress(capsys: pytest.CaptureFixture[str]):
    assert call("run", write(budget={"steps": 4}), "--json", "--quiet") == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert (result["outcome"], result["steps"]) == ("budget", 4)
    assert {"smse", "nlpd"} <= set(result["scores"])
    assert printed.err == ""


@pytest.mark.parametrize("name", ["rbf", "RBF", "Gaussian", "matern", "Rational_Quadratic"])
def test_names_of_kernels_elsewhere_lead_to_ours(name: str):
    with pytest.raises(KernelError, match=r"did you mean (se|matern52|rq) or \1-ard\?"):
        kernels.make(name)


def test_a_sweep_continues_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    spec = {"method": "cholqr", "data": {"name": "hypercube", "n": 50, "d": 1}, "budget": {"steps": 2}}
    file, out, store = tmp_path / "grid.json", tmp_path / "sweep.parquet", tmp_path / "store"
    command = ["sweep", str(file), "--out", str(out), "--store", str(store)]
    file.write_text(json.dumps({"spec": spec, "over": {"seed": [0]}}))
    assert call(*command) == 0
    [first] = Store(store).names()
    seconds = [record.seconds for record in Store(store).kept(first).records]
    file.write_text(json.dumps({"spec": spec, "over": {"seed": [0, 1]}}))

    assert call(*command, "--json", "-q") == 0

    printed = capsys.readouterr()
    assert len(json.loads(printed.out[printed.out.index("[\n") :])) == 2
    assert len(Store(store).names()) == 2
    assert [record.seconds for record in Store(store).kept(first).records] == seconds  # it was not run again


def test_data_lists_every_set(capsys: pytest.CaptureFixture[str]):
    assert call("data") == 0
    listed = capsys.readouterr().out
    assert call("data", "list") == 0

    assert capsys.readouterr().out == listed
    assert all(name in listed for name in data.available().index)
    assert len(listed.splitlines()) == len(data.available()) + 1

    assert call("data", "fetch", "friedman1") == 0
    assert "friedman1 is generated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["bench", "cholqr", "--m", "12"], "python -m benchmarks cholqr --m 12"),
        (["bench"], "python -m benchmarks cholqr --data kin40k --m 512"),
        (["reproduce", "cholqr-fig1", "--help"], "python -m papers cholqr-fig1 --help"),
        (["reproduce"], "python -m papers all"),
    ],
)
def test_benchmarks_and_papers_are_said_to_be_in_the_repository(
    arguments: list[str], command: str, capsys: pytest.CaptureFixture[str]
):
    assert call(*arguments) == 2

    printed = capsys.readouterr().err
    assert "not part of the installed package" in printed
    assert printed.endswith(f": {command}\n")


@pytest.mark.parametrize("out", ["there.json", "nowhere/sweep.parquet", "."])
def test_an_out_that_cannot_be_written_is_reported_before_any_work(out: str, capsys: pytest.CaptureFixture[str]):
    Path("there.json").write_text("")
    spec = json.loads(Path(write(budget={"steps": 2})).read_text())
    Path("grid.json").write_text(json.dumps({"spec": spec, "over": {"block": [3, 4]}}))

    if out == "there.json":
        assert call("run", "spec.json", "--out", out) == 2
    else:
        assert call("sweep", "grid.json", "--out", out) == 2
    printed = capsys.readouterr().err
    assert "Error: Cannot write" in printed or "Error: The store cannot keep" in printed
    assert "1 of 2" not in printed


def test_a_sweep_runs_every_combination_and_keeps_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    spec = {"method": "cholqr", "data": {"name": "hypercube", "n": 50, "d": 1}, "budget": {"steps": 2}}
    file, out = tmp_path / "grid.json", tmp_path / "sweep.parquet"
    file.write_text(json.dumps({"spec": spec, "over": {"num_inducing": [2, 6], "seed": [0, 1]}}))

    assert call("sweep", str(file), "--out", str(out)) == 0

    printed = capsys.readouterr()
    assert "4 of 4" in printed.err
    assert sorted(pd.read_parquet(out).index) == [f"num_inducing={m}, seed={s}" for m in (2, 6) for s in (0, 1)]
    table = read_table(out)
    kept = pd.read_parquet(out)
    kept.iloc[0, kept.columns.get_loc("steps")] += 1
    kept.to_parquet(tmp_path / "changed.parquet")  # with the digest of the table before
    assert len(table) == 4
    with pytest.raises(DataError, match="was changed after it was written"):
        read_table(tmp_path / "changed.parquet")
    file.write_text(json.dumps({"spec": spec}))
    assert call("sweep", str(file)) == 2
    assert 'The sweep has no "over"' in capsys.readouterr().err


def test_the_program_says_its_version_and_its_commands(capsys: pytest.CaptureFixture[str]):
    assert call("--version") == 0
    assert capsys.readouterr().out == f"gpexplorer {__version__}\n"

    call()
    printed = capsys.readouterr()
    assert not set(["run", "methods", "serve", "data"]) - set((printed.out + printed.err).replace("│", " ").split())


def test_help_needs_neither_torch_nor_panel():
    code = "import sys; from gpexplorer.__main__ import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "import os; print({'torch', 'panel', 'pandas'} & set(sys.modules), os.environ['OMP_WAIT_POLICY'])"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert done.stdout.endswith("set() PASSIVE\n")  # it is set in time: torch, which reads it, comes later


def test_progress_is_a_line(monkeypatch: pytest.MonkeyPatch):
    run = Spec("toy", data=ROWS, budget={"steps": 40}).open()
    assert progress_line(run) == "starting"
    for _ in range(11):
        run.advance()

    assert progress_line(run).startswith("step 10, ")
    assert ", objective -" in progress_line(run)
    assert ", 25% of the budget, about 0:01 to go" in progress_line(run)
    assert [format_duration(seconds) for seconds in (0.2, 59.5, 61, 3723)] == ["0:01", "1:00", "1:01", "1:02:03"]
