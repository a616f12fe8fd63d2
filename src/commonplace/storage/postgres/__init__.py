"""PostgreSQL storage. All spaces share the same tables; row-level security separates them."""
