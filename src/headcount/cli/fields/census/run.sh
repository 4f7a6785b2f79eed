#!/bin/sh
# Noisy tables of a census: consistent tables of all attributes, with error bars.
# The tables here are an example. Replace them by your own, one by one; headcount check says what is wrong with them.
#
#   --network town.bif                 how the attributes of one person hang together, from a survey
#   --population 5000                  how many people there are
#   --noise laplace --scale 10         the noise that was added to every number

# Is everything in the files as it should be? This runs nothing and writes nothing.
headcount check age_work.csv work_car.csv \
  --network town.bif \
  --population 5000 \
  --noise laplace --scale 10

# Infer, write tables into the folder results, and a page with the map: results/report.html.
headcount infer age_work.csv work_car.csv \
  --network town.bif \
  --population 5000 \
  --noise laplace --scale 10 \
  --out results --report
