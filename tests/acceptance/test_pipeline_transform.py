"""Transformations by Python functions, and what is known of a transformation before it is run."""

import sys

import pytest

from pipelines import PipelinePlace
from serving import run
from tailrace.client.bulk import BulkClient
from tailrace.pipeline.errors import TransformError
from tailrace.pipeline.transform import check_transformation
from tailrace.pipeline.transform_function import find_function

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(300)

MODULE = "rules_of_shop"
RULES = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType


@F.udf(StringType())
def loud(text):
    return text.upper() + "!"


def totals(changes, table):
    return changes.where("qty > 1").withColumn("loud", loud("item")).withColumn("origin", F.lit(table))


def narrow(changes):
    return changes.select("_change_type", "_offset", "_commit_version", "_commit_timestamp", "item")


def deep(changes):
    return changes.withColumn("both", F.struct("item", "qty"))


def unknown(changes):
    return changes.withColumn("x", F.col("nowhere"))
"""


@pytest.fixture
def place(tmp_path, spark, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{MODULE}.py").write_text(RULES)
    made = PipelinePlace(tmp_path, spark)
    yield made
    made.close()
    find_function.cache_clear()
    sys.modules.pop(MODULE, None)


def function_of(place, name):
    return {"transform_function": f"{MODULE}:{name}", "py_files": (str(place.directory / f"{MODULE}.py"),)}


def test_a_function_transforms_rows_and_changes_and_its_module_reaches_the_tasks(place):
    place.shop.insert(1, 2, 3)
    place.create(**function_of(place, "totals"))
    place.run()
    place.shop.insert(4)
    place.shop.commit("UPDATE orders SET item = 'new' WHERE id = 3", "DELETE FROM orders WHERE id = 2")
    place.run()
    found = place.rows("SELECT id, loud, origin FROM orders ORDER BY id")
    assert found == [(3, "NEW!", "orders"), (4, "ITEM 4!", "orders")]
    assert place.verify().equal


def schemas_of(place, definition):
    client = BulkClient(definition.server)
    try:
        return client.info(definition.source, definition.tables).newest()
    finally:
        client.close()


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ("SELECT *, nowhere FROM changes", r"of table orders: .*`nowhere` cannot be resolved"),
        ("SELEKT id FROM changes", "of table orders: .*PARSE_SYNTAX_ERROR"),
        ("SELECT * EXCEPT (id) FROM changes", "leaves out column 'id'"),
        ("SELECT * EXCEPT (_offset) FROM orders", "leaves out column '_offset'"),
        ("SELECT * EXCEPT (_offset), item AS _offset FROM changes", "leave them unchanged"),
        ("SELECT *, named_struct('a', qty) AS s FROM changes", "column 's' of type struct.*CAST"),
        ("SELECT *, qty AS item FROM changes", "several columns 'item'"),
        ("unknown", "of table orders: .*`nowhere` cannot be resolved"),
        ("narrow", "leaves out column 'id'"),
        ("deep", "column 'both' of type struct"),
        ("missing", "has no function missing"),
    ],
)
def test_what_does_not_fit_a_table_is_told_before_anything_is_read(place, members, says):
    place.create(**({"transform": members} if " " in members else function_of(place, members)))
    definition = place.store.get("p").definition
    with pytest.raises(TransformError, match=says):
        check_transformation(definition, schemas_of(place, definition), place.spark)


def test_what_fits_is_taken(place):
    place.create(transform="WITH some AS (SELECT * FROM changes WHERE qty > 1) SELECT *, '{x}' AS brace FROM some; ")
    place.create("f", **function_of(place, "totals"))
    for name in "pf":
        definition = place.store.get(name).definition
        check_transformation(definition, schemas_of(place, definition), place.spark)
    place.shop.insert(1, 2)
    place.run()
    assert place.rows("SELECT id, brace FROM orders") == [(2, "{x}")]


def test_create_refuses_a_transformation_that_does_not_fit_and_makes_no_pipeline(place):
    words = ["--source", "shop", "--table", "orders", "--sink", f"sqlite:///{place.directory}/x.db"]
    words += ["--server", place.shop.server.url, "--data-dir", place.directory / "cli", "--master", "local[1]"]
    bad = run("pipeline", "create", "x", *words, "--transform", "SELECT nowhere FROM changes", timeout=150)
    assert (bad.returncode, "cannot be resolved" in bad.stderr) == (1, True), bad.stderr
    assert "x" not in run("pipeline", "ls", "--data-dir", place.directory / "cli").stdout
    unchecked = run("pipeline", "create", "x", *words, "--transform", "SELECT nowhere", "--no-check", timeout=60)
    assert unchecked.returncode == 0, unchecked.stderr
