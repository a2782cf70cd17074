"""Creation of topics: plans, policies, placement, znodes."""
