#!/bin/sh
# Phones seen per zone and hour: how many people moved between zones.
# The tables here are an example. Replace them by your own, one by one; headcount check says what is wrong with them.
#
#   --transitions transitions.csv      how one individual moves in one step
#   --cells cells.csv                  all cells and where they are
#   --population 8000                  how many people there are
#   --noise binomial --detection 0.3   each person is seen with probability 0.3
#   --omx                              write the flows as OMX matrices for transport tools too

# Is everything in the files as it should be? This runs nothing and writes nothing.
headcount check counts.csv \
  --transitions transitions.csv --cells cells.csv \
  --population 8000 --noise binomial --detection 0.3

# Infer, write tables into the folder results, and a page with the map: results/report.html.
headcount infer counts.csv \
  --transitions transitions.csv --cells cells.csv \
  --population 8000 --noise binomial --detection 0.3 --omx \
  --out results --report
