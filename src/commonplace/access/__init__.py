"""Authentication and authorization: accounts, credentials, tokens, sign-in and OAuth."""
