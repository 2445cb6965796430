"""`python check.py certificate.json` proves bounds on min f(W), <Z_k, W> >= y_k (or = y_k), in exact arithmetic, alone."""

import fractions
import json

F, FORMAT, get = fractions.Fraction, "penchant certificate 1", lambda c, name: (c[name][1], F(2) ** c[name][0])
flat, turned = lambda rows: [x for row in rows for x in row], lambda rows: list(zip(*rows, strict=True))
dot, square = lambda a, b: sum([x * y for x, y in zip(a, b, strict=True)]), lambda a: dot(a, a)
seal = lambda c: int.from_bytes(json.dumps({**c, "seal": 0}).encode(), "big") % (2**256 - 189)  # a prime
times = lambda a, b: [[dot(x, y) for y in b] for x in a]  # a b', of matrices given by their rows


def exp(x, up, bits):  # (1 + x/N)^N <= e^x <= (1 - x/N)^-N, N = 2^bits
    n, s = ((1 << bits) + (-x if up else x)) * 2**bits // 1, 2 * bits
    for _ in range(bits if n > 0 else 1 // 0):
        n, s = n * n >> (cut := max(0, 2 * n.bit_length() - 3 * bits)), 2 * s - cut
    return F(2) ** s / n if up else n / F(2) ** s


def prove(c):  # conditions, p, and bounds on the p-th power of the optimum, from W and V = sum of lam_k Z_k
    (left, a), (right, b), (lam, g), (W, w), (y, r) = map(get, [c] * 5, ("left", "right", "dual", "primal", "targets"))
    pulls = [[dot(s, column) for column in turned(rows)] for s, rows in zip(lam, left, strict=True)]
    V, v, lam, equal, plus = times(turned(pulls), turned(right)), a * b * g, flat(lam), c["equal"] != 0, c["plus"] != 0
    mass, need = dot(lam, y) * g * r, {"format": c["format"] == FORMAT, "dual": equal or min(lam) >= 0}
    if c["norm"] == "none":  # V = 0: there is no W
        return need | {"sum": mass > 0 and not equal and not any(flat(V))}, 1, 0, 0
    A, W, w, p, k = W, times(W, c["factor"]) if c["norm"] == "nuclear" else W, w / c["over"], 1, iter(y)
    slack = [dot(z, u) * a * b * w - next(k) * r for rows, u in zip(left, times(right, W), strict=True) for z in rows]
    need["primal"] = min(slack) >= 0 >= equal * max(slack) and w > 0 and min(flat(W)) * plus >= 0
    if c["norm"] == "nuclear":  # |A B'| <= (|A|^2 + |B|^2) / 2; diagonally dominant: top >= V V' + L L'
        (L, l), (top, t), p, A = get(c, "root"), get(c, "top"), 2, flat(A + c["factor"])
        for i, (x, z) in enumerate(zip(times(V, V), times(L, L), strict=True)):
            rest = [(i == j) * top * t - h * v**2 - q * l**2 for j, (h, q) in enumerate(zip(x, z, strict=True))]
            need[f"row {i}"] = 2 * rest[i] >= sum(map(abs, rest))
        low, high = max(mass, 0) ** 2 / (top * t), (square(A) * w / 2) ** 2
    elif c["norm"] == "entropy":  # the sum of w log w - (1 + l) w + e^l, where log w <= l + s
        (l, k), (s, t), e = get(c, "level"), get(c, "slope"), lambda x, up: exp(x, up, c["bits"])
        rows = [(i * k, j * t, x * v, z * w) for i, j, x, z in zip(l, s, flat(V), flat(W), strict=True)]
        need["slope"] = equal and plus and all(e(i + j, False) >= z for i, j, _, z in rows)
        low = mass - sum(e(i + x, True) - e(i, False) for i, _, x, _ in rows)
        high = sum(z * (j - 1) + e(i, True) for i, j, _, z in rows)
    else:
        p, one, two = {"l2": (2, square, square), "l1": (1, max, sum), "linf": (1, sum, max)}[c["norm"]]
        V, high = [max(x, -x * (not plus)) for x in flat(V)], two([abs(x) for x in flat(W)]) * w**p
        low = max(mass / v, 0) ** p / one(V)
    lower, upper = (x * abs(x) ** (p - 1) for x in (F(*c["lower"]), F(*c["upper"])))
    return need | {"bounds": lower <= low and high <= upper}, p, low, high


def check(text):
    c = json.loads(text, parse_float=int, parse_constant=int)
    need = prove(c)[0] if text == json.dumps({**c, "seal": seal(c)}) else {"seal": False}
    if failed := [name for name, holds in need.items() if not holds]:
        raise ValueError(f"refused: {', '.join(failed)}")
    a, b, so = F(*c["lower"]), F(*c["upper"]), f"<Z_k, W> {'>='[c['equal'] != 0 :]} y_k{', W >= 0' * bool(c['plus'])}"
    return f"no W has {so}" if c["norm"] == "none" else f"{a / 1.0} <= min {c['norm']}(W), {so}, <= {b / 1.0}"


if __name__ == "__main__":
    print(check(open(fractions.sys.argv[1]).read()))  # noqa: SIM115  # pyright: ignore[reportAttributeAccessIssue]
