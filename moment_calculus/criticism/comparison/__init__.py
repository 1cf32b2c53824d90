"""An approximation beside chains of the same model, in numbers, words and pictures."""
