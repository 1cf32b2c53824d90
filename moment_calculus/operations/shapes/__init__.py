"""Operations that put elements elsewhere."""
