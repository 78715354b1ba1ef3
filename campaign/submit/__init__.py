"""From planned runs to jobs: the ledger, scripts, submission through submitit, polling, cancel and retry."""
