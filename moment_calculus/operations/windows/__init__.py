"""Operations on windows that move over the axes of an array."""
