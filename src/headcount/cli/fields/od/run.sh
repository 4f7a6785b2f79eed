#!/bin/sh
# Trips that entered and left every zone, and a matrix of some years ago: how many went from where to where.
# The tables here are an example. Replace them by your own, one by one; headcount check says what is wrong with them.
#
#   margins.csv                        trips by origin (entries) and by destination (exits); how many there were is their sum
#   --old-matrix old_matrix.csv        the old matrix (CSV or OMX); pairs without trips become rare (--zeros impossible forbids them)
#   --noise exact                      the totals are known exactly; where they were counted with error, poisson, and --population N
#   --sums screenline.csv              which pairs cross the bridge, and --sum-counts bridge_counts.csv how many were counted there
#   --cells zones.csv                  all zones and where they are
#   --omx                              write the flows as OMX matrices for transport tools too

# Is everything in the files as it should be? This runs nothing and writes nothing.
headcount check margins.csv \
  --old-matrix old_matrix.csv --noise exact --cells zones.csv \
  --sums screenline.csv --sum-counts bridge_counts.csv

# Infer, write tables into the folder results, and a page with the map: results/report.html.
headcount infer margins.csv \
  --old-matrix old_matrix.csv --noise exact --cells zones.csv \
  --sums screenline.csv --sum-counts bridge_counts.csv --omx \
  --out results --report
