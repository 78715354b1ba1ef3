"""From sites and studies to a plan: expand, check, price, order. Pure: nothing here queues anything."""
