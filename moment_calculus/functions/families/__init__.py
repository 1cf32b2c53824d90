"""The functions of the table; one file for each family of closed forms."""
