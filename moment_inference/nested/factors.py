import numpy as np
class Factors:
    def __init__(self, m):
        e = np.linalg.eigvalsh(m.d)[:, 0]; self.is_definite = e > 0
        self.S = np.linalg.inv(m.d); self.log_determinant = np.linalg.slogdet(m.d)[1]
    def solve(self, b): return np.einsum('gde,ge->gd', self.S, b)
    def variances(self, A): return np.einsum('gnd,gde,gne->gn', A.d, self.S, A.d, optimize=True)
    def columns(self, A, i, j): return np.einsum('gnd,gde,gme->gnm', A.d, self.S, A.d[:, i:j], optimize=True)
def factorise(m): return Factors(m)
