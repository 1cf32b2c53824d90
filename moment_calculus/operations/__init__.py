"""Operations on live values; each file holds the operation and what it remembers."""
