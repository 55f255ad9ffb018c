"""Facts about metrics."""

import re
from pathlib import Path

from tailrace.metrics import Metrics

DOCS = Path(__file__).parent.parent.parent / "docs" / "reference" / "metrics.md"


def names():
    for family in Metrics().registry.collect():
        yield f"{family.name}_total" if family.type == "counter" else family.name


def test_each_metric_has_its_heading_in_the_docs_and_each_heading_its_metric():
    assert sorted(re.findall(r"^### (\S+)$", DOCS.read_text(), re.MULTILINE)) == sorted(names())


def test_names_begin_with_ours_and_end_with_their_unit():
    for name in names():
        assert re.fullmatch(r"tailrace_[a-z_]+", name)


def test_two_servers_in_one_process_do_not_share_numbers():
    one, other = Metrics(), Metrics()
    one.encoded_changes.inc(5)
    assert other.registry.get_sample_value("tailrace_encoded_changes_total") == 0
