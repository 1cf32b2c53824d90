"""Operations component by component."""
