"""How a command of the command line ends, and what reaches the terminal.

Results go to stdout, everything else to stderr. Bad input, a full disk and Ctrl-C end a command in one line.
"""

import errno
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand

from smilex.errors import OneProcessError, SmilexError
from smilex.processes import is_first_on_computer, is_first_process

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""


class Command(TyperCommand):
    """A command that ends in one line where it cannot go on: exit code 1, or 130 after Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        options = [parameter.name for parameter in self.params]
        try:
            with invalid_molecules_on_stderr():
                return super().invoke(ctx)
        except SmilexError as error:
            _fail(as_options(str(error), options), by_each=isinstance(error, OneProcessError))
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader of a pipe has seen enough
                raise
            where = f"{error.filename}: " if error.filename else ""
            _fail(f"{where}{error.strerror or error}")
        except KeyboardInterrupt:
            line = "interrupted; the same command with --resume goes on" if "resume" in options else "interrupted"
            say(f"\n{line}" if progress() else line)  # a terminal shows ^C
            raise typer.Exit(INTERRUPTED) from None
        finally:
            Console(stderr=True).show_cursor()  # a progress bar that was cut off has hidden it


def _fail(message: str, *, by_each: bool = False) -> NoReturn:
    """End the command. What all processes of a job ran into is said once on each computer."""
    if by_each or is_first_on_computer():
        typer.echo(f"{typer.style('error:', fg=typer.colors.RED, bold=True)} {' '.join(message.split())}", err=True)
    raise typer.Exit(1)


def quiet_libraries() -> None:
    """Keep the warnings and progress bars of libraries off the terminal; call it before they are imported."""
    for name, value in {
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONWARNINGS": "ignore",  # reaches worker processes
    }.items():
        os.environ.setdefault(name, value)
    logging.disable(logging.WARNING)


def as_options(message: str, names: Sequence[str]) -> str:
    """Write the arguments that a message names the way the command line writes them.

    Parameters
    ----------
    message : str
        Message of an error of the Python API.
    names : sequence of str
        Arguments that are options of the command.

    Examples
    --------
    >>> as_options("go on with resume=True, or set data_dir= or split='random'", ["resume", "data_dir", "split"])
    'go on with --resume, or set --data-dir or --split random'
    """
    for name in names:
        option = f"--{name.replace('_', '-')}"
        message = re.sub(rf"\b{name}=True\b", option, message)
        message = re.sub(rf"\b{name}='?(\w+)'?", rf"{option} \1", message)
        message = re.sub(rf"\b{name}=", option, message)
        if "_" in name:  # other names are also plain words
            message = re.sub(rf"\b{name}\b", option, message)
    return message


@contextmanager
def invalid_molecules_on_stderr() -> Iterator[None]:
    """Show the report of invalid molecules as it is, and no other warning."""
    from smilex.data.rows import InvalidMoleculeWarning

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", InvalidMoleculeWarning)
        warnings.showwarning = show
        yield


def say(text: str) -> None:
    """Print to stderr, where whatever is no result belongs; of several processes the first one does."""
    if is_first_process():
        typer.echo(text, err=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Say on stderr what is being done, and how long it took.

    Examples
    --------
    >>> with step("adding"):
    ...     total = 1 + 1
    """
    say(f"{title} …")
    started = time.monotonic()
    yield
    say(f"  done in {time.monotonic() - started:.0f} s")


def progress() -> bool:
    """Whether to show progress bars: only where somebody is looking."""
    return sys.stderr.isatty()


def show(*results: str | Table) -> None:
    """Print results to stdout; of several processes the first one does."""
    if not is_first_process():
        return
    # SMILES look like markup ([nH]) and emoji codes; in a file or a pipe, a table is as wide as it needs to be.
    width = None if sys.stdout.isatty() else 10_000
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    for result in results:
        console.print(result, soft_wrap=isinstance(result, str))
