"""From the store's views to answers: tables, fits and figures. Reads views only (docs/contract.md section 5).

Importing this package costs nothing: matplotlib and NumPy are imported by the functions that need them.
"""
