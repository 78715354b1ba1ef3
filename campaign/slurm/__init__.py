"""All that Slurm says and is told. Parsing is pure; `commands.py` alone runs Slurm's programs."""
