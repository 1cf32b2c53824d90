"""Operations on moving windows: convolutions, pools and largest entries."""
