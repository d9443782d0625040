"""The command line, as a test meets it."""

import pytest

from losspool import cli


@pytest.fixture
def command(capsys, monkeypatch):
    """Exit code, standard output and standard error of the real entry point."""

    def run(*arguments, columns=160):
        monkeypatch.setattr("sys.argv", ["losspool", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run
