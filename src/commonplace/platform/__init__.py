"""What agents do beside remembering: ask a model, run, and work through steps that last."""
