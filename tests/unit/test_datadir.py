"""Facts about the data directory."""

import pytest

from tailrace.datadir import DataDirectory
from tailrace.log.files import DiskFiles
from tailrace.model.errors import ConfigError, DataDirectoryInUseError
from tailrace.source.sqlite.connection import create_database


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


def modes(directory):
    return {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}


def test_what_is_made_in_a_directory_that_was_there_is_for_its_owner_alone(tmp_path, caplog):
    tmp_path.chmod(0o755)
    with DataDirectory(tmp_path) as directory:
        DiskFiles(directory.shard(0)).create("state").close()
        create_database(directory.embedded)
    assert modes(tmp_path) == {"lock": 0o600, "oplog": 0o700, "embedded.db": 0o600}
    assert modes(directory.shard(0)) == {"state": 0o600}
    assert caplog.messages == []


def test_parts_that_other_users_may_read_are_named(tmp_path, caplog):
    tmp_path.chmod(0o755)
    directory = DataDirectory(tmp_path)
    directory.shard(0).mkdir(parents=True)
    directory.shard(0).parent.chmod(0o750)
    directory.metadata.touch(0o600)
    directory.acquire().release()
    (told,) = caplog.records
    assert (told.paths, told.advice) == ([str(tmp_path / "oplog")], f"chmod -R go= {tmp_path}")
    tmp_path.chmod(0o700)
    caplog.clear()
    directory.acquire().release()
    assert caplog.messages == []


def test_a_group_that_may_read_the_directory_of_a_log_may_read_its_files(tmp_path):
    tmp_path.chmod(0o750)
    DiskFiles(tmp_path).create("state").close()
    assert modes(tmp_path) == {"state": 0o640}
