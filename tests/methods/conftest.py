"""What several files of tests share."""

from pathlib import Path

import pytest

from testing.methods import train_dense


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights that short runs start from, as methods are meant to."""
    return train_dense(tmp_path_factory.mktemp("trained"))
