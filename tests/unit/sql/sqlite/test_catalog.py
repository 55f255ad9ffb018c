import pytest

from tailrace.sql.sqlite.catalog import CatalogColumn, CatalogTable, fold


@pytest.mark.parametrize(("name", "folded"), [("Users", "users"), ("ÄRGER", "Ärger"), ("a_1", "a_1"), ("İ", "İ")])
def test_only_ascii_letters_are_folded(name, folded):
    assert fold(name) == folded


def test_a_column_is_found_letters_case_aside():
    table = CatalogTable("t", (CatalogColumn("Id"), CatalogColumn("name")))
    assert table.column("ID") == CatalogColumn("Id")
    assert table.column("nothing") is None
