"""Table 3: relative error against the size of the map.

Source: Liu, Sheldon and Dietterich (ICML 2014), Section 5, Table 3.

Settings: the birds on L ∈ {16, 25, 36, 49} cells, N = 30 L, w = (1, 2, 2, 2), T = 20, 10 data sets each. The third
column is Table 1's third,
computed once.
Seeds: (20140621, ℓ, 1000·w₁, N, T, data set, stream).

Deviations: those of Table 1.

Duration: about 10 CPU minutes, a third of them shared with Table 1.
"""

from reproduction import printed
from reproduction.tables import Layout
from reproduction.tasks import Setting

SIDES = (4, 5, 6, 7)
LAYOUT = Layout(
    name="table3",
    caption="Relative error of node counts (N) and edge counts (E) for different sizes of the map",
    header="L =",
    columns=tuple(str(side**2) for side in SIDES),
    settings=tuple(Setting(side, 1.0, 30 * side**2) for side in SIDES),
    printed=printed.TABLE3,
)
