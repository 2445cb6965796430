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
    least, most = [x for x in (F(*c["lower"]), F(*c["upper"])) if x / 1.0 == x]  # floats: they are printed as they are
    if c["norm"] == "none":  # V = 0: there is no W
        return need | {"sum": mass > 0 and not equal and set(flat(V)) == {0}}, 1, 0, 0
    A, W, w, p, k = W, times(W, c["factor"]) if c["norm"] == "nuclear" else W, w / c["over"], 1, iter(y)
    slack = [dot(z, u) * a * b * w - next(k) * r for rows, u in zip(left, times(right, W), strict=True) for z in rows]
    need["primal"] = min(slack) >= 0 >= equal * max(slack) and w > 0 and min(flat(W)) * plus >= 0
    if c["norm"] == "nuclear":  # |A B'| <= (|A|^2 + |B|^2) / 2; V V' + L L' <= top by the sums of its rows
        (L, l), (top, t), p, A = get(c, "root"), get(c, "top"), 2, flat(A + c["factor"])
        sums = enumerate(zip(times(V, V), times(L, L), strict=True))
        need |= {f"row {i}": sum(abs(h * v**2 + q * l**2) for h, q in zip(*x, strict=True)) <= top * t for i, x in sums}
        low, high = max(mass, 0) ** 2 / (top * t), (square(A) * w / 2) ** 2
    elif c["norm"] == "entropy":  # the sum of w log w - (1 + l) w + e^l, where log w <= l + s
        (l, k), (s, t), e = get(c, "level"), get(c, "slope"), lambda x, up: exp(x, up, c["bits"])
        q = [(i * k, j * t, x * v, z * w) for i, j, x, z in zip(l, s, flat(V), flat(W), strict=True)]
        need["slope"] = equal and plus and all(e(i + j, False) >= z for i, j, _, z in q)
        low, high = mass + sum(e(i, 0) - e(i + x, 1) for i, _, x, _ in q), sum(z * j - z + e(i, 1) for i, j, _, z in q)
    else:
        p, f, h = {"l2": (2, square, square), "l1": (1, max, sum), "linf": (1, sum, max)}[c["norm"]]
        low, high = max(mass / v, 0) ** p / f([max(x, x * plus - x) for x in flat(V)]), h([*map(abs, flat(W))]) * w**p
    return need | {"bounds": least * abs(least) ** (p - 1) <= low and high <= most * abs(most) ** (p - 1)}, p, low, high


def check(text):
    try:
        c = json.loads(text, parse_float=int, parse_constant=int)
        need = prove(c)[0] if text == json.dumps({**c, "seal": seal(c)}) else {"seal": False}
    except Exception as error:  # names, shapes or numbers that state nothing
        raise ValueError(f"refused: not a certificate ({type(error).__name__}: {error})") from None
    if failed := [name for name, holds in need.items() if not holds]:
        raise ValueError(f"refused: {', '.join(failed)}")
    a, b, so = F(*c["lower"]), F(*c["upper"]), f"<Z_k, W> {'>='[c['equal'] != 0 :]} y_k{', W >= 0' * (c['plus'] != 0)}"
    return f"no W has {so}" if c["norm"] == "none" else f"{a / 1.0} <= min {c['norm']}(W), {so}, <= {b / 1.0}"


if __name__ == "__main__":
    print(check(open(fractions.sys.argv[1], errors="replace").read()))  # noqa: SIM115  # pyright: ignore[reportAttributeAccessIssue]
