"""Table 1: relative error against the size of the population.

Source: Liu, Sheldon and Dietterich (ICML 2014), Section 5, Table 1.

Settings: the birds on L = 36 cells, w = (1, 2, 2, 2), N ∈ {36, 360, 1080, 3600}, T = 20, Poisson counts of unit
intensity, 10 data sets each.
Seeds: (20140621, ℓ, 1000·w₁, N, T, data set, stream).

Deviations: the features are those of the published simulator (the paper prints no formulas); winds are drawn anew for every data
set; the reference is `PathGibbs`, with the paper's 11 million moves beside it (twice on three data sets of every setting); MAP is
solved to convergence; GCGM is computed as the joint mode (`Laplace`), the fixed point of the paper's sweeps, with `EdgeEP` run on
three data sets of every setting as proof.

Duration: about 11 CPU minutes.
"""

from reproduction import printed
from reproduction.tables import Layout
from reproduction.tasks import Setting

POPULATIONS = (36, 360, 1080, 3600)
LAYOUT = Layout(
    name="table1",
    caption="Relative error of node counts (N) and edge counts (E) for different population sizes",
    header="N =",
    columns=tuple(str(n) for n in POPULATIONS),
    settings=tuple(Setting(6, 1.0, n) for n in POPULATIONS),
    printed=printed.TABLE1,
)
