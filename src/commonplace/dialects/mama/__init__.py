"""MAMA: decisions with topics, outcomes and relations; checkpoints between sessions."""
