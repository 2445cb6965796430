"""Population gradients of attention regression with covariates that are not normal."""

import jax

from ..setting.covariates import AbstractCoordinate, Covariates
from ..setting.problem import AttentionRegression
from .sources import AbstractSource


class CovariatePopulation(AbstractSource):
    """The exact population gradient for independent coordinates of a law; `truth` has the covariance, the map and the noise.

    Preconditioner, regulariser and step are those of normal covariates. `run.loss - m sigma^2` is what cannot be fitted plus what is left to learn.
    """

    truth: AttentionRegression
    covariates: Covariates

    def __init__(self, truth: AttentionRegression, law: AbstractCoordinate):
        self.truth, self.covariates = truth, Covariates(law, truth.inputs)

    @property
    def problem(self):
        return self.truth

    def draws(self, count):
        return None

    def evaluate(self, layer, draw):
        excess, slope = jax.value_and_grad(lambda one: self.covariates.excess(self.truth, one))(layer)
        return excess + self.truth.outputs * self.truth.noise, slope
