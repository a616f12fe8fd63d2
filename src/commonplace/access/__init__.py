"""Who may come in: accounts, credentials, tokens, sign-in and OAuth."""
