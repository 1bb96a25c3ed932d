from pathlib import Path

import pandas as pd
import pytest

from seedstats.table import BadTable, read_table, settings_of

GOOD = "scheme,seed,value\na,1,4.0\na,2,4.1\nb,1,3.9\nb,2,4.0\n"


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
    table = read(tmp_path, "scheme,seed,value,length,width\na,1,4.0,32,8\na,2,nan,,8\nb,1,,32,16\n")
    file = tmp_path / f"results{suffix}"
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
        pd.read_csv(tmp_path / "results.csv").assign(status=table["status"]).to_parquet(file)
    else:
        pd.read_csv(tmp_path / "results.csv", dtype=str, keep_default_na=False).to_csv(file, index=False)
    pd.testing.assert_frame_equal(read_table(file), table, check_like=True)


def test_a_status_is_inferred_from_the_value(tmp_path: Path) -> None:
    table = read(tmp_path, "scheme,seed,value\na,1,4.0\na,2,nan\na,3,\na,4,inf\n")
    assert table["status"].tolist() == ["finished", "diverged", "missing", "diverged"]
    given = read(tmp_path, "scheme,seed,value,status\na,1,4.0,\na,2,9.5,diverged\na,3,,missing\n")
    assert given["status"].tolist() == ["finished", "diverged", "missing"]


def test_seeds_that_other_groups_have_are_missing(tmp_path: Path) -> None:
    """On the same data, for the same metric, also where the table has a status; but not where it says that a seed was
    not planned."""
    rows = "a,1,copy,4.0\na,2,copy,4.1\nb,2,copy,3.9\na,3,sort,3.0\n"
    table = read(tmp_path, f"scheme,seed,data,value\n{rows}")
    added = table[table["status"] == "missing"]
    assert added[["scheme", "seed", "data"]].to_numpy().tolist() == [["b", 1, "copy"]]
    assert added["value"].isna().all()
    known = "".join(f"{row},finished\n" for row in rows.splitlines())
    assert "missing" in set(read(tmp_path, f"scheme,seed,data,value,status\n{known}")["status"])
    assert len(read(tmp_path, f"scheme,seed,data,value,status\n{known}b,1,copy,,unplanned\n")) == 5


def test_documents_may_have_names(tmp_path: Path) -> None:
    head = "scheme,seed,value,stretch,document\n"
    rows = "{0},1,4,,\n{0},1,4,1,Emma\n{0},1,4,2,7\n{0},1,4,3,Emma\n"
    documents = read(tmp_path, head + rows.format("a") + rows.format("b"))["document"]
    assert documents.isna().tolist() == [True, False, False, False] * 2
    first, other, again = documents.dropna()[:3]
    assert first == again != other
    assert documents[:4].dropna().tolist() == documents[4:].dropna().tolist()


def test_blocks_looks_and_caveats(tmp_path: Path) -> None:
    head = "scheme,seed,value,stretch,look,caveat,folder\n"
    table = read(tmp_path, f"{head}a,1,4.0,,,short text,runs/a1\na,1,3.9,1,,,\na,1,4.1,2,,,\na,2,4.2,,2,,\n")
    assert table["stretch"].fillna(0).tolist() == [0, 1, 2, 0]
    assert table["look"].tolist() == [1, 1, 1, 2]
    assert table["caveat"].tolist() == ["short text", "", "", ""]
    assert table["folder"].tolist() == ["runs/a1", "", "", ""]
    assert settings_of(table) == []
    bare = read(tmp_path, GOOD)
    assert (set(bare["look"]), set(bare["caveat"]), bare["stretch"].isna().all()) == ({1}, {""}, True)


def test_any_other_column_is_a_setting(tmp_path: Path) -> None:
    table = read(tmp_path, "scheme,seed,value,width,host\na,1,4.0,8,x\na,2,4.1,8,x\na,1,3.9,16,x\na,2,4.0,16,x\n")
    assert settings_of(table) == ["width", "host"]


def test_a_column_with_a_value_for_each_row_is_no_setting(tmp_path: Path) -> None:
    table = read(tmp_path, "scheme,seed,value,runtime\na,1,4.0,8.1\na,2,4.1,8.2\nb,1,3.9,8.3\nb,2,4.0,8.4\n")
    with pytest.raises(BadTable, match="column runtime: nearly every row has a value of its own"):
        settings_of(table)


@pytest.mark.parametrize(
    ("columns", "rows", "problem"),
    [
        ("value", "", "has no rows"),
        ("value", "\udce9,1,4.0", "is not UTF-8 text (byte 0xe9); convert it to UTF-8 first"),
        ("value", "a,1,N/A", "row 2, column value: 'N/A' is no number"),
        ("value", "a,None,4.0", "row 2, column seed: 'None' is no number"),
        ("loss", "a,1,4.0", "has no column value; it has scheme, seed, loss"),
        ("value,value", "a,1,4.0,5.0", "has two columns value"),
        ("value", "a,1,4.0\nb,x,4.0", "row 3, column seed: 'x' is no number"),
        ("value", "a,1.5,4.0", "row 2, column seed: '1.5' is no whole number"),
        ("value", "a,,4.0", "row 2, column seed: '' is no whole number"),
        ("value", ",1,4.0", "row 2, column scheme: '' is empty"),
        ("value,status", "a,1,,finished", "row 2, column value: '' is no number, of a run that is finished"),
        (
            "value,status",
            "a,1,4.0,done",
            "row 2, column status: 'done' is none of finished, diverged, missing, unplanned",
        ),
        ("value,stretch", "a,1,4.0,0.5", "row 2, column stretch: '0.5' is no whole number"),
        (
            "value,stretch,stretch_tokens",
            "a,1,4.0,,\na,1,4.0,1,0",
            "row 3, column stretch_tokens: '0' is no number of tokens",
        ),
        ("value,look", "a,1,4.0,first", "row 2, column look: 'first' is no number"),
        ("value,better", "a,1,4.0,more", "row 2, column better: 'more' is neither lower nor higher"),
        (
            "value",
            "a,1,4.0\nb,1,4.0\na,1,4.1",
            "rows 2 and 4 are both a with seed 1, value: a column that tells them apart is missing",
        ),
    ],
)
def test_a_bad_table_is_refused_in_one_line_with_row_and_column(
    tmp_path: Path, columns: str, rows: str, problem: str
) -> None:
    with pytest.raises(BadTable) as refused:
        read(tmp_path, f"scheme,seed,{columns}\n{rows}\n")
    assert str(refused.value) == problem


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(BadTable, match=r"^can't be read as csv: No columns to parse from file$"):
        read(tmp_path, "")
    with pytest.raises(BadTable, match=r"^is not UTF-8 text \(byte 0xff\); convert it to UTF-8 first$"):
        read(tmp_path, "\udcff\udcfes\0")
