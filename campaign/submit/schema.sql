-- The ledger: what was planned and submitted. Times are UTC text, YYYY-MM-DDTHH:MM:SS.ffffffZ.
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
INSERT OR IGNORE INTO meta VALUES ('schema', '3');

CREATE TABLE IF NOT EXISTS plans (
  seq       INTEGER PRIMARY KEY AUTOINCREMENT,
  plan_id   TEXT NOT NULL UNIQUE,
  created   TEXT NOT NULL,
  overrides TEXT NOT NULL,            -- JSON, --set as given
  n_runs    INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS plan_runs (
  plan_id TEXT NOT NULL,
  run_id  TEXT NOT NULL,
  ord     INTEGER NOT NULL,
  PRIMARY KEY (plan_id, run_id)
) STRICT, WITHOUT ROWID;

-- With a rowid: rows of 2 kB in a tree of random ids would make the file four times as large, and planning slow.
CREATE TABLE IF NOT EXISTS runs (
  run_id         TEXT PRIMARY KEY,
  site           TEXT NOT NULL,
  study          TEXT NOT NULL,
  series         TEXT NOT NULL,
  plan_id        TEXT NOT NULL,       -- the newest plan that names it
  workload       TEXT NOT NULL,       -- entry point, or the command's argv as JSON
  strategy       TEXT,
  scaling        TEXT NOT NULL,
  params         TEXT NOT NULL,       -- JSON
  nodes          INTEGER NOT NULL,
  ranks_per_node INTEGER NOT NULL,
  cpus_per_rank  INTEGER NOT NULL,
  gpus_per_rank  INTEGER NOT NULL,
  world_size     INTEGER NOT NULL,
  local_batch    INTEGER,
  global_batch   INTEGER,
  repeat         INTEGER NOT NULL,
  ord            INTEGER NOT NULL,    -- place in its newest plan
  gate           INTEGER NOT NULL,    -- 1: the smallest point, runs first
  gated          INTEGER NOT NULL,    -- 1: waits for the gate of its study and site
  pack           TEXT NOT NULL,
  oversubscribed INTEGER NOT NULL,    -- as planned; the record says what the ranks saw
  state          TEXT NOT NULL,
  fail_class     TEXT,
  reason         TEXT,
  valid          INTEGER,             -- NULL until there is a record
  why_invalid    TEXT,
  attempts       INTEGER NOT NULL DEFAULT 0,   -- attempts that were queued
  superseded_by  TEXT,                -- a newer plan of the same study, site and overrides has replaced it
  site_sha256    TEXT NOT NULL,
  study_sha256   TEXT NOT NULL,
  run_root       TEXT,                -- of the newest attempt
  spec           TEXT NOT NULL,       -- JSON, the run exactly as planned
  changed        TEXT NOT NULL,
  -- since schema 3
  walltime_s     INTEGER              -- of the next attempt, where a retry needs another than planned
) STRICT;
CREATE INDEX IF NOT EXISTS runs_state ON runs (state, site, study);

CREATE TABLE IF NOT EXISTS jobs (
  site          TEXT NOT NULL,
  tag           TEXT NOT NULL,        -- the job name; one per sbatch
  array_index   INTEGER NOT NULL,
  run_id        TEXT NOT NULL,
  attempt       INTEGER NOT NULL,
  scheduler     TEXT NOT NULL,        -- slurm | local
  job_id        TEXT,                 -- NULL until the answer of sbatch was seen
  cluster       TEXT,                 -- what the controller called itself
  partition     TEXT,
  account       TEXT,
  user          TEXT NOT NULL,        -- who submitted: whose jobs Slurm is asked for
  host          TEXT NOT NULL,        -- where it was submitted; a local job runs there
  state         TEXT NOT NULL,        -- a run state, or refused
  slurm_state   TEXT,
  reason        TEXT,
  intent_at     TEXT NOT NULL,
  submitted_at  TEXT,
  started       TEXT,
  ended         TEXT,
  exit_code     INTEGER,
  signal        INTEGER,
  nodelist      TEXT,
  state_seen_at TEXT,                 -- when a query last answered for it
  submit_dir    TEXT NOT NULL,
  script_sha256 TEXT,
  -- since schema 3
  expected_start TEXT,                -- of a pending job, as Slurm's backfill last thought
  over_since    TEXT,                 -- when a query first called it over, by our clock
  fail_class    TEXT,                 -- of this attempt
  failed_nodes  TEXT,                 -- suspects, separated by commas
  walltime_s    INTEGER,              -- as asked for
  avoided       TEXT,                 -- nodes kept out because of earlier failures, separated by commas
  cancel_at     TEXT,                 -- when `campaign cancel` told Slurm to end it
  again         TEXT,                 -- what was decided about another attempt, and why; NULL: nothing so far
  PRIMARY KEY (site, tag, array_index, run_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_run ON jobs (run_id, attempt);
CREATE INDEX IF NOT EXISTS jobs_state ON jobs (state, site);

CREATE TABLE IF NOT EXISTS polls (
  site    TEXT PRIMARY KEY,
  at      TEXT NOT NULL,              -- last attempt
  ok_at   TEXT,                       -- last answer
  error   TEXT                        -- why the last attempt failed
) STRICT, WITHOUT ROWID;

-- Since schema 2: what accounting says that an array element held (`campaign cost` asks for it once the job has ended).
CREATE TABLE IF NOT EXISTS charges (
  site        TEXT NOT NULL,
  tag         TEXT NOT NULL,
  array_index INTEGER NOT NULL,
  elapsed_s   INTEGER NOT NULL,
  nodes       INTEGER NOT NULL,
  cpus        INTEGER NOT NULL,       -- as the site's Slurm counts them
  gpus        INTEGER,                -- NULL: the cluster doesn't account for GPUs
  billing     INTEGER,                -- the cluster's own weight; NULL: not said
  seen_at     TEXT NOT NULL,
  PRIMARY KEY (site, tag, array_index)
) STRICT, WITHOUT ROWID;

-- Since schema 2: which code was submitted, once per sbatch. NULL: the project is in no git work tree.
CREATE TABLE IF NOT EXISTS origins (
  site      TEXT NOT NULL,
  tag       TEXT NOT NULL,
  commit_id TEXT,
  dirty     INTEGER,
  version   TEXT NOT NULL,            -- of campaign
  PRIMARY KEY (site, tag)
) STRICT, WITHOUT ROWID;

-- Since schema 3: submit limits that no site file knows, as accounting named them when sbatch had met one.
CREATE TABLE IF NOT EXISTS learned_limits (
  site        TEXT NOT NULL,
  qos         TEXT NOT NULL,          -- '': of the user's association
  submit_jobs INTEGER NOT NULL,
  seen_at     TEXT NOT NULL,
  PRIMARY KEY (site, qos)
) STRICT, WITHOUT ROWID;
