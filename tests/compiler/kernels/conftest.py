"""The trial library of every instruction set that this machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "trial" in metafunc.fixturenames:
        from tests.support.kernel_trial import isas_of_this_machine

        metafunc.parametrize("trial", isas_of_this_machine(), indirect=True, scope="session")


@pytest.fixture(scope="session")
def trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Every kernel template compiled for one instruction set."""
    from tests.support.kernel_trial import Trial

    built = Trial.build(request.param, tmp_path_factory.mktemp(request.param))
    yield built
    built.library.close()
