"""`campaign completion`: the shell's own completion, made by click."""

from __future__ import annotations

import click

from campaign.cli.common import Context, flags

INSTALL = {
    "bash": "echo 'eval \"$(campaign completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(campaign completion zsh)\"' >> ~/.zshrc",
    "fish": "campaign completion fish > ~/.config/fish/completions/campaign.fish",
}

EPILOG = """\b
Examples:
  eval "$(campaign completion bash)"                                      now, in this shell
  echo 'eval "$(campaign completion bash)"' >> ~/.bashrc                  from the next shell on
  campaign completion fish > ~/.config/fish/completions/campaign.fish
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(list(INSTALL)))
@flags
def completion(context: Context, shell: str) -> None:
    """Print shell completion for bash, zsh or fish.

    The script goes to stdout, the line that installs it to stderr.
    """
    from click.shell_completion import get_completion_class

    from campaign.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None  # click ships all three
    # the template itself, not `source()`: that one runs the shell to look at its version
    made = kind(cli, {}, "campaign", "_CAMPAIGN_COMPLETE")
    script = made.source_template % made.source_vars()
    context.data = {"shell": shell, "script": script, "install": INSTALL[shell]}
    context.say(script)
    context.note(f"To install it: {INSTALL[shell]}")
