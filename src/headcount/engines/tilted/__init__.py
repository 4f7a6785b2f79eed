"""Gaussian engines around a tilted centre: TiltedEP (the default), Laplace and ClosedForm are settings of the same parts."""
