#!/bin/sh
# Weekly counts of birds at six sites: how many were where, and how they moved.
# The tables here are an example. Replace them by your own, one by one; headcount check says what is wrong with them.
#
#   --transitions transitions.csv      how one individual moves in one step
#   --cells cells.csv                  all cells and where they are
#   --population 1200                  how many birds there are
#   --noise poisson --rate 0.5         half of the birds present are counted, more or less

# Is everything in the files as it should be? This runs nothing and writes nothing.
headcount check counts.csv \
  --transitions transitions.csv --cells cells.csv \
  --population 1200 --noise poisson --rate 0.5

# Infer, write tables into the folder results, and a page with the map: results/report.html.
headcount infer counts.csv \
  --transitions transitions.csv --cells cells.csv \
  --population 1200 --noise poisson --rate 0.5 \
  --out results --report
