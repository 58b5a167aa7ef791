package main

import "math"

// The tanh form of GELU is x·σ(z) with z = geluA·x + geluB·x³.
const (
	geluA = 2 * 0.7978845608028654 // 2·√(2/π)
	geluB = geluA * 0.044715
)

// logit is (a + b·x²)·x.
func (g *gen) logit(x vec, a, b num) vec {
	z := g.mul(x, x)
	g.horner(z, g.get(b), g.get(a))
	return g.mul(z, x)
}

func (g *gen) gelu() {
	g.routine("gelu", "n int, dst, x *float32)", "sets dst to the tanh form of GELU of x.")
	n, dst, x := g.arg("n"), g.arg("dst"), g.arg("x")
	a, b, one, e := g.constant(-geluA), g.constant(-geluB), g.constant(1), g.exponent()
	g.loop(n, 1, func(int) {
		v := g.load(x, 0)
		y := g.exp(e, g.logit(v, a, b))
		g.store(g.div(v, g.add(y, g.get(one))), dst, 0)
	})
	g.finish()
}

// geluGrad computes σ + x·σ(1-σ)·z'(x). With w = e^-z, σ = 1/(1+w) and 1-σ is
// w·σ, which loses no digits. Outside ±10 the derivative is 0 or 1 to all
// digits; x is clamped to there so that nothing overflows.
func (g *gen) geluGrad() {
	g.routine("geluGrad", "n int, dx, dy, x *float32)", "sets dx = dy∘GELU'(x).")
	n, dx, dy, x := g.arg("n"), g.arg("dx"), g.arg("dy"), g.arg("x")
	a, b, e := g.constant(-geluA), g.constant(-geluB), g.exponent()
	one, a1, b1 := g.constant(1), g.constant(geluA), g.constant(3*geluB)
	low, high := g.constant(-10), g.constant(10)
	g.loop(n, 1, func(int) {
		v := g.load(x, 0)
		v = g.max(g.min(v, g.get(high)), g.get(low))
		w := g.exp(e, g.logit(v, a, b))
		s := g.div(g.get(one), g.add(w, g.get(one)))
		slope := g.mul(v, v)
		g.horner(slope, g.get(b1), g.get(a1))
		slope = g.mul(slope, v)
		slope = g.mul(slope, g.mul(w, s))
		d := g.copy(s)
		g.accumulate(d, slope, s)
		g.store(g.mul(d, g.load(dy, 0)), dx, 0)
	})
	g.finish()
}

// gaussian holds the constants of the lower tail of the normal distribution,
// Φ(-t) = e^(-t²/2)·R(t) for t ≥ 0. Beyond cutoff e^(-t²/2) is zero.
type gaussian struct {
	e                       exponent
	magnitude, cutoff, half num
	numerator, denominator  []num // of the powers of t in R, from the highest down
}

// gaussian loads the constants of gaussian. R is a rational function of degrees 4 and 5
// whose relative error is minimax on 0 ≤ t ≤ 13.3, 5e-9. All of its coefficients
// are positive, so that no digits cancel.
func (g *gen) gaussian() gaussian {
	t := gaussian{
		e:         g.exponent(),
		magnitude: g.constant(math.Float32frombits(0x7fffffff)),
		cutoff:    g.constant(14),
		half:      g.constant(-0.5),
	}
	for _, c := range []float32{0.0040201843, 0.039984155, 0.18130674, 0.43568635, 0.5} {
		t.numerator = append(t.numerator, g.stored(c))
	}
	for _, c := range []float32{0.010076965, 0.10023279, 0.46438026, 1.1944842, 1.6692576, 1} {
		t.denominator = append(t.denominator, g.stored(c))
	}
	return t
}

// lowerTail returns t = |x|, at most cutoff, e^(-t²/2) and R(t). The power is rounded
// once and what that leaves out goes to the exponential too: half a unit in the
// last place of a power near -87 is 32 of its exponential.
func (g *gen) lowerTail(c gaussian, x vec) (t, density, ratio vec) {
	t = g.min(g.emitBinary(g.VANDPS, x, g.get(c.magnitude)), g.get(c.cutoff))
	half := g.mul(t, g.get(c.half))
	power := g.mul(half, t)
	rest := g.copy(half)
	for h := range rest {
		g.VFMSUB213PS(power[h], t[h], rest[h])
	}
	density = g.expSum(c.e, power, rest)
	horner := func(coef []num) vec {
		p := g.copy(g.get(coef[0]))
		for _, c := range coef[1:] {
			g.horner(p, t, g.get(c))
		}
		return p
	}
	return t, density, g.div(horner(c.numerator), horner(c.denominator))
}

// erfGELU is max(x, 0) - t·Φ(-t) with t = |x|: x·Φ(x) on either side of 0,
// and no digits cancel, as Φ(-t) ≤ ½.
func (g *gen) erfGELU() {
	g.routine("erfGELU", "n int, dst, x *float32)", "sets dst to the exact GELU of x.")
	n, dst, x := g.arg("n"), g.arg("dst"), g.arg("x")
	c, zero := g.gaussian(), g.constant(0)
	g.loop(n, 1, func(int) {
		t, density, ratio := g.lowerTail(c, g.load(x, 0))
		y := g.max(g.load(x, 0), g.get(zero))
		g.reduce(y, g.mul(t, density), ratio)
		g.store(y, dst, 0)
	})
	g.finish()
}

// erfGELUGrad is Φ(x) + x·φ(x) = s - sign(x)·w with w = Φ(-t) - t·φ(t), where s
// is 1 for a positive x and else 0.
func (g *gen) erfGELUGrad() {
	g.routine("erfGELUGrad", "n int, dx, dy, x *float32)", "sets dx = dy∘GELU'(x) of the exact GELU.")
	n, dx, dy, x := g.arg("n"), g.arg("dx"), g.arg("dy"), g.arg("x")
	c, zero, one := g.gaussian(), g.constant(0), g.constant(1)
	signBit, peak := g.constant(float32(math.Copysign(0, -1))), g.constant(0.3989422804014327) // φ(0)
	g.loop(n, 1, func(int) {
		t, density, w := g.lowerTail(c, g.load(x, 0))
		g.reduce(w, t, g.get(peak))
		w = g.mul(w, density)
		sign := g.emitBinary(g.VORPS, g.emitBinary(g.VANDPS, g.load(x, 0), g.get(signBit)), g.get(one))
		d := g.max(sign, g.get(zero))
		g.reduce(d, sign, w)
		g.store(g.mul(d, g.load(dy, 0)), dx, 0)
	})
	g.finish()
}
