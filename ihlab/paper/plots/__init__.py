"""Pictures of tables that only one question draws."""
