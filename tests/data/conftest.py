"""Files as they lie on a disk, for the tests of what is read."""

import pytest


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write
