"""Facts about the data directory."""

import pytest

from tailrace.datadir import DataDirectory
from tailrace.model.errors import ConfigError, DataDirectoryInUseError


def test_only_one_owner_at_a_time(tmp_path):
    with DataDirectory(tmp_path / "data"), pytest.raises(DataDirectoryInUseError, match="process"):
        DataDirectory(tmp_path / "data").acquire()
    DataDirectory(tmp_path / "data").acquire().release()


def test_a_directory_that_cannot_be_made_is_a_configuration_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="data directory"):
        DataDirectory(tmp_path / "file" / "data").acquire()


def test_a_directory_that_is_made_is_for_its_owner_alone(tmp_path):
    DataDirectory(tmp_path / "data").acquire().release()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
