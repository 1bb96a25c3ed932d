"""Tables of results from files: which rows are read as what, and what is refused."""

from pathlib import Path

import pandas as pd
import pytest

from seedstats import BadTable, read_table
from seedstats.table import settings_of

GOOD = "name,seed,value\na,1,4.0\na,2,4.1\nb,1,3.9\nb,2,4.0\n"


def read(tmp_path: Path, text: str, name: str = "results.csv") -> pd.DataFrame:
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    return read_table(tmp_path / name)


def test_three_columns_are_enough(tmp_path: Path) -> None:
    table = read(tmp_path, GOOD)
    assert table["seed"].tolist() == [1, 2, 1, 2]
    assert table["value"].tolist() == [4.0, 4.1, 3.9, 4.0]
    assert set(table["status"]) == {"finished"}
    assert (set(table["data"]), set(table["metric"])) == ({"results"}, {"value"})
    assert table["length"].isna().all()
    assert settings_of(table) == []


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet"])
def test_files_of_other_kinds_are_the_same_table(tmp_path: Path, suffix: str) -> None:
    table = read(tmp_path, "name,seed,value,length,width\na,1,4.0,32,8\na,2,nan,,8\nb,1,,32,16\n")
    file = tmp_path / f"results{suffix}"
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
        pd.read_csv(tmp_path / "results.csv").assign(status=table["status"]).to_parquet(file)
    else:
        pd.read_csv(tmp_path / "results.csv", dtype=str, keep_default_na=False).to_csv(file, index=False)
    pd.testing.assert_frame_equal(read_table(file), table, check_like=True)


def test_a_status_is_inferred_from_the_value(tmp_path: Path) -> None:
    table = read(tmp_path, "name,seed,value\na,1,4.0\na,2,nan\na,3,\na,4,inf\n")
    assert table["status"].tolist() == ["finished", "diverged", "missing", "diverged"]
    given = read(tmp_path, "name,seed,value,status\na,1,4.0,\na,2,9.5,diverged\na,3,,missing\n")
    assert given["status"].tolist() == ["finished", "diverged", "missing"]


def test_seeds_that_other_groups_have_are_missing(tmp_path: Path) -> None:
    """On the same data, for the same metric, also where the table has a status; but not where it says that a seed was
    not planned."""
    rows = "a,1,copy,4.0\na,2,copy,4.1\nb,2,copy,3.9\na,3,sort,3.0\n"
    table = read(tmp_path, f"name,seed,data,value\n{rows}")
    added = table[table["status"] == "missing"]
    assert added[["name", "seed", "data"]].to_numpy().tolist() == [["b", 1, "copy"]]
    assert added["value"].isna().all()
    known = "".join(f"{row},finished\n" for row in rows.splitlines())
    assert "missing" in set(read(tmp_path, f"name,seed,data,value,status\n{known}")["status"])
    assert len(read(tmp_path, f"name,seed,data,value,status\n{known}b,1,copy,,unplanned\n")) == 5


def test_looks_and_caveats(tmp_path: Path) -> None:
    table = read(tmp_path, "name,seed,value,look,caveat,folder\na,1,4.0,,short text,runs/a1\na,2,4.2,2,,\n")
    assert table["look"].tolist() == [1, 2]
    assert table["caveat"].tolist() == ["short text", ""]
    assert table["folder"].tolist() == ["runs/a1", ""]
    assert settings_of(table) == []
    bare = read(tmp_path, GOOD)
    assert (set(bare["look"]), set(bare["caveat"])) == ({1}, {""})


def test_any_other_column_is_a_setting(tmp_path: Path) -> None:
    table = read(tmp_path, "name,seed,value,width,host\na,1,4.0,8,x\na,2,4.1,8,x\na,1,3.9,16,x\na,2,4.0,16,x\n")
    assert settings_of(table) == ["width", "host"]


def test_a_column_with_a_value_for_each_row_is_no_setting(tmp_path: Path) -> None:
    table = read(tmp_path, "name,seed,value,runtime\na,1,4.0,8.1\na,2,4.1,8.2\nb,1,3.9,8.3\nb,2,4.0,8.4\n")
    with pytest.raises(BadTable, match="column runtime"):
        settings_of(table)


def test_a_row_without_a_seed_is_a_reference(tmp_path: Path) -> None:
    """Which is no group, and has no missing seeds; it may have the seed of its one run."""
    table = read(tmp_path, f"{GOOD}bigram,,5.4\n")
    assert table["status"].tolist() == ["finished"] * 4 + ["reference"]
    assert table["seed"].isna().tolist() == [False] * 4 + [True]
    head, *lines = f"{GOOD}bigram,1,5.4\n".splitlines()
    given = "\n".join([f"{head},status", *(f"{line},{'reference' * line.startswith('bigram')}" for line in lines)])
    assert read(tmp_path, given)["status"].tolist() == table["status"].tolist()


@pytest.mark.parametrize("column", ["method", "model", "scheme"])
def test_other_words_for_a_name(tmp_path: Path, column: str) -> None:
    pd.testing.assert_frame_equal(read(tmp_path, GOOD.replace("name", column)), read(tmp_path, GOOD))
    assert settings_of(read(tmp_path, "name,seed,value,model\na,1,4,x\na,2,4,x\n")) == ["model"]


@pytest.mark.parametrize(
    ("columns", "rows", "problem"),
    [
        ("value", "", "{file}: has no rows"),
        ("value,value", "a,1,4.0,5.0", "{file}: has two columns value"),
        ("value", "a,1,N/A", "{file}: row 2, column value: 'N/A' is no number"),
        ("value", "a,1,1e200",
         "{file}: row 2, column value: '1e200' is too large to be compared; nan stands for a run that diverged"),
        ("value", "a,1,1_000", "{file}: row 2, column value: '1_000' is no number"),
        ("value", "a,None,4.0", "{file}: row 2, column seed: 'None' is no number"),
        ("loss", "a,1,4.0", "{file}: has no column value; it has name, seed, loss"),
        ("value", "a,1,4.0\nb,x,4.0", "{file}: row 3, column seed: 'x' is no number"),
        ("value", "a,1.5,4.0", "{file}: row 2, column seed: '1.5' is no whole number"),
        ("value", "a,1e300,4.0", "{file}: row 2, column seed: '1e300' is too large to be told from its neighbours"),
        ("value", "a,1,4.0\na,,4.0", "{file}: row 3, column seed: '' is no whole number"),
        ("value", "a,,4.0\nb,,4.0", "{file}: row 2, column seed: '' is a reference's, as all are: nothing to compare"),
        ("value", ",1,4.0", "{file}: row 2, column name: '' is empty"),
        ("value,status", "a,1,,finished", "{file}: row 2, column value: '' is no number, of a run that is finished"),
        ("value,status", "a,1,4.0,done",
         "{file}: row 2, column status: 'done' is none of finished, diverged, missing, unplanned, reference"),
        ("value,stretch", "a,1,4.0,\na,1,4.0,1",
         "{file}: row 3, column stretch: '1' is of a passage of text, not of a run; leave such rows out"),
        ("value,look", "a,1,4.0,first", "{file}: row 2, column look: 'first' is no number"),
        ("value,unit", "a,1,4.0,of all", "{file}: row 2, column value: '4.0' is no proportion, as the unit says"),
        ("value,better", "a,1,4.0,more", "{file}: row 2, column better: 'more' is neither lower nor higher"),
        ("value,better", "a,1,4.0,lower\na,2,4.0,higher",
         "{file}: row 3, column better: 'higher' is another one than in an earlier row of the same metric"),
        ("value", "a,1,4.0\nb,1,4.0\na,1,4.1",
         "{file}: row 2 and {file}: row 4 are both a with seed 1, value: a column that tells them apart is missing"),
        ("value", "a,1,4.0\nb,,4.0\nb,,4.1",
         "{file}: row 3 and {file}: row 4 are both b without a seed, value: a column that tells them apart is missing"),
    ],
)  # fmt: skip
def test_a_bad_table_is_refused_in_one_line_with_row_and_column(
    tmp_path: Path, columns: str, rows: str, problem: str
) -> None:
    with pytest.raises(BadTable) as refused:
        read(tmp_path, f"name,seed,{columns}\n{rows}\n")
    assert str(refused.value) == problem.format(file=tmp_path / "results.csv")


def test_of_several_files_the_wrong_one_is_named(tmp_path: Path) -> None:
    """With the row's number in it, and the header as it has it."""
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text(GOOD)
    for text, columns, problem in (
        ("method,seed,loss\nc,1,4\n", None, f"{other}: has no column value; it has method, seed, loss"),
        ("name,seed,value\nc,1,4\nc,2,x\n", None, f"{other}: row 3, column value: 'x' is no number"),
        ("model,seed,value\nc,1,4\na,2,4\n", None, f"{one}: row 3 and {other}: row 3 are both a with seed 2"),
        ("method,seed,loss\nc,1,x\n", {"value": "value"}, f"{other}: has no column value; it has method, seed, loss"),
    ):
        other.write_text(text)
        with pytest.raises(BadTable) as refused:
            read_table(one, other, columns=columns)
        assert str(refused.value).startswith(problem)
    other.write_text("method,seed,loss\nc,1,4.5\nd,1,5\n")
    assert read_table(other, columns={"value": "loss"})["name"].tolist() == ["c", "d"]
