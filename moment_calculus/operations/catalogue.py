"""The catalogue: the operations that front ends serve, and the values and layouts that rules name.

It is the door through which a front end takes them, to say how its own calls are written. Modules
that have several list them in ``__all__``, where a new one is added.
"""

from moment_calculus.operations.backward.settled import settle_parameters
from moment_calculus.operations.dropout.masked_weight import *
from moment_calculus.operations.dropout.noise import *
from moment_calculus.operations.dropout.one_hot import one_hot
from moment_calculus.operations.elementwise.choices import *
from moment_calculus.operations.elementwise.elementary import *
from moment_calculus.operations.elementwise.logarithms import log
from moment_calculus.operations.elementwise.products import *
from moment_calculus.operations.elementwise.sums import *
from moment_calculus.operations.elementwise.unary import *
from moment_calculus.operations.linear.correlations import require_factor
from moment_calculus.operations.linear.diagonals import *
from moment_calculus.operations.linear.factorisation import *
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.linear.matrices import *
from moment_calculus.operations.linear.reductions import *
from moment_calculus.operations.normalised.normalisation import normalise
from moment_calculus.operations.normalised.softmax import *
from moment_calculus.operations.recognition import *
from moment_calculus.operations.recurrent.cells import *
from moment_calculus.operations.recurrent.layers import Layers
from moment_calculus.operations.shapes.concatenation import *
from moment_calculus.operations.shapes.coordinates import *
from moment_calculus.operations.shapes.indexing import *
from moment_calculus.operations.shapes.moves import *
from moment_calculus.operations.shapes.ordered import *
from moment_calculus.operations.shapes.reshaping import *
from moment_calculus.operations.shapes.rows import *
from moment_calculus.operations.shapes.sticks import *
from moment_calculus.operations.shapes.zero_sum import zero_sum
from moment_calculus.operations.windows.convolution import *
from moment_calculus.operations.windows.largest import *
from moment_calculus.operations.windows.pooling import *
