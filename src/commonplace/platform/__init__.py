"""What agents do beside remembering: run, and work through steps that outlive the process."""
