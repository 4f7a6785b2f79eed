#!/bin/sh
# Patients per ward and day: how many were transferred.
# The tables here are an example. Replace them by your own, one by one; headcount check says what is wrong with them.
#
#   --transitions transitions.csv      how one individual moves in one step
#   --population 400                   how many patients there are, those at home included
#   --noise gaussian --sd 3            a day's numbers are off by about three patients

# Is everything in the files as it should be? This runs nothing and writes nothing.
headcount check counts.csv \
  --transitions transitions.csv \
  --population 400 --noise gaussian --sd 3

# Infer, write tables into the folder results, and a page with the map: results/report.html.
headcount infer counts.csv \
  --transitions transitions.csv \
  --population 400 --noise gaussian --sd 3 \
  --out results --report
