"""Table 2: relative error against the size of the coefficients.

Source: Liu, Sheldon and Dietterich (ICML 2014), Section 5, Table 2.

Settings: the birds on L = 36 cells, N = 1080, w ∈ {(.5, 1, 1, 1), (1, 2, 2, 2), (2, 4, 4, 4)}, T = 20, 10 data sets
each. The middle column
is Table 1's third, computed once.
Seeds: (20140621, ℓ, 1000·w₁, N, T, data set, stream).

Deviations: those of Table 1.

Duration: about 8 CPU minutes, a third of them shared with Table 1.
"""

from reproduction import printed
from reproduction.tables import Layout
from reproduction.tasks import Setting

LAYOUT = Layout(
    name="table2",
    caption="Relative error of node counts (N) and edge counts (E) for different coefficients",
    header="w =",
    columns=("w₀.₅", "w₁", "w₂"),
    settings=tuple(Setting(6, weight, 1080) for weight in (0.5, 1.0, 2.0)),
    printed=printed.TABLE2,
)
