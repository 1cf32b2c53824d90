import numpy as np
from dataclasses import dataclass
@dataclass(frozen=True, eq=False)
class Pattern:
    rows: np.ndarray
    columns: np.ndarray
    shape: tuple
    @classmethod
    def of(cls, rows, columns, shape):
        return cls(rows, columns, shape)
class Sparse:
    def __init__(self, pattern, values):
        self.pattern, self.values = pattern, values
        self.d = np.zeros((len(values), *pattern.shape)); self.d[:, pattern.rows, pattern.columns] = values
    def times(self, x): return np.einsum('gnd,gd->gn', self.d, x)
    def transposed_times(self, y): return np.einsum('gnd,gn->gd', self.d, y)
    def gram(self, w):
        s = Sparse.__new__(Sparse); s.d = np.einsum('gnd,gn,gne->gde', self.d, w, self.d, optimize=True); return s
    def __add__(self, o):
        s = Sparse.__new__(Sparse); s.d = self.d + o.d; return s
