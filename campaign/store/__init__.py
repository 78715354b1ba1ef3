"""The store: one DuckDB file with the metrics of all runs and a copy of the ledger's runs and jobs.

It is a cache: `campaign collect --rebuild` makes it anew from the ledger and the records. The views (schema/views.sql,
docs/contract.md section 5) are its public interface; the tables behind them are private.
"""
