"""Student intervals: what a mean or a slope is known to, from few measurements."""

from abc import abstractmethod

import equinox as eqx
from scipy.special import stdtrit


class StudentInterval(eqx.Module):
    """An estimate with a standard `error` and degrees of freedom; `low` and `high` end its 95 % interval."""

    error: eqx.AbstractVar[float]

    @property
    @abstractmethod
    def centre(self) -> float: ...

    @property
    @abstractmethod
    def degrees(self) -> float: ...

    @property
    def low(self) -> float:
        return self.interval()[0]

    @property
    def high(self) -> float:
        return self.interval()[1]

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The Student interval of a level."""
        reach = float(stdtrit(self.degrees, (1 + level) / 2)) * self.error if self.error > 0 else 0.0
        return self.centre - reach, self.centre + reach
