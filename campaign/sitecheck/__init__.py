"""The three site tools: is a site file true (check), a first file (discover), what compute nodes say (probe)."""
