package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// exponent holds the constants of exp.
type exponent struct {
	log2e, magic, ln2, ln2Rest num
	coef                       []num // of the powers of r, from the highest down
	lowest, highest, inf       num
}

// exponent loads the constants of exp. e^x = 2^n·e^r with n = x·log₂e rounded
// to an integer and r = x - n·ln 2, |r| ≤ ln(2)/2. The polynomial is
// 1 + r + r²·q(r), where q is the minimax polynomial of degree 4 of the
// relative error, which is 3.7e-9 after its coefficients are rounded.
func (g *gen) exponent() exponent {
	e := exponent{
		log2e: g.constant(math.Log2E),
		// Adding 1.5·2²³ rounds to an integer and leaves that integer in the
		// low bits of the sum.
		magic:   g.constant(3 << 22),
		ln2:     g.constant(0.693147182),
		ln2Rest: g.constant(-1.904654212e-09),
		lowest:  g.constant(-87.33654), // e^x is a normal number from here
		highest: g.constant(88.72283),  // to here
		inf:     g.constant(float32(math.Inf(1))),
	}
	for _, c := range []float32{0.00138145406, 0.00836874545, 0.041668389, 0.166665211, 0.49999994, 1, 1} {
		e.coef = append(e.coef, g.constant(c))
	}
	return e
}

// exp is e^x: zero where that is below the normal numbers, NaN where x is.
func (g *gen) exp(e exponent, x vec) vec { return g.expSum(e, x, nil) }

// expSum is e^(x+rest) for a rest that x leaves out; nil: none.
func (g *gen) expSum(e exponent, x, rest vec) vec {
	t := g.copy(x)
	g.horner(t, g.get(e.log2e), g.get(e.magic))
	n := g.sub(t, g.get(e.magic))
	r := g.copy(x)
	g.reduce(r, n, g.get(e.ln2))
	g.reduce(r, n, g.get(e.ln2Rest))
	if rest != nil {
		g.addTo(r, rest)
	}
	p := g.copy(g.get(e.coef[0]))
	for _, c := range e.coef[1:] {
		g.horner(p, r, g.get(c))
	}
	// Add n to the exponent of p, which is between √½ and √2.
	for h := range p {
		g.VPSLLD(operand.Imm(23), t[h], t[h])
		g.VPADDD(t[h], p[h], p[h])
	}
	lowest, highest, inf := g.get(e.lowest), g.get(e.highest), g.get(e.inf)
	const lessThan, notLessThan, notAtMost = 0x11, 0x15, 0x16 // quiet; not... holds for NaN
	if g.avx512 {
		k := g.K()
		g.VCMPPS(operand.Imm(notLessThan), lowest[0], x[0], k)
		g.VMOVAPS_Z(p[0], k, p[0])
		k = g.K()
		g.VCMPPS(operand.Imm(notAtMost), highest[0], x[0], k)
		g.VADDPS(inf[0], x[0], k, p[0])
		return p
	}
	for h := range p {
		below, above, v := g.register(), g.register(), g.register()
		g.VCMPPS(operand.Imm(lessThan), lowest[h], x[h], below)
		g.VANDNPS(p[h], below, p[h])
		g.VCMPPS(operand.Imm(notAtMost), highest[h], x[h], above)
		g.VADDPS(inf[h], x[h], v)
		g.VBLENDVPS(above, v, p[h], p[h])
	}
	return p
}

// expRows computes 2^t for t = factor·x - shift, rounded once. With t = n + f,
// n an integer and |f| ≤ ½, 2^f is a polynomial of degree 5 that is 1 at 0 and,
// its rounding included, off by 1.86 units in the last place at most; n is
// added to its exponent. t is clamped to where that gives exactly 0 and +Inf;
// a NaN passes. Two vecs go side by side, as each step waits for the one before.
func (g *gen) expRows() {
	g.routine("expRows", "rows, n int, x *float32, xrs int, factor float32, shift, sum *float32)",
		"sets n numbers of each row to 2^(factor·x - shift) and adds their sum to sum.")
	rows, x, xrs := g.arg("rows"), g.arg("x"), g.stride("xrs")
	shift, sum := g.arg("shift"), g.arg("sum")
	factor, lowest, highest := g.param("factor"), g.constant(-127), g.constant(128)
	var coef []num
	for _, c := range []float32{0.00132783747, 0.00967509486, 0.055508364, 0.240221813, 0.693146765, 1} {
		coef = append(coef, g.constant(c))
	}
	row := g.label("row")
	g.Label(row)
	n, by, total := g.arg("n"), g.get(num{mem: operand.Mem{Base: shift}}), g.zero()
	g.loop(n, 2, func(vecs int) {
		var f, n, p []vec
		scale, low, high := g.get(factor), g.get(lowest), g.get(highest)
		for u := range vecs {
			t := g.load(x, u)
			for h := range t {
				g.VFMSUB132PS(scale[h], by[h], t[h])
			}
			f = append(f, g.min(g.max(t, low), high))
		}
		for u := range vecs {
			n = append(n, g.integer(f[u]))
			f[u] = g.sub(f[u], g.round(f[u]))
			for _, r := range n[u] {
				g.VPSLLD(operand.Imm(23), r, r)
			}
		}
		first := g.get(coef[0])
		for range vecs {
			p = append(p, g.copy(first))
		}
		for _, c := range coef[1:] {
			c := g.get(c)
			for u := range vecs {
				g.horner(p[u], f[u], c)
			}
		}
		for u := range vecs {
			for h, r := range p[u] {
				g.VPADDD(n[u][h], r, r)
			}
			g.store(p[u], x, u)
			p[u] = g.valid(p[u])
		}
		if vecs == 2 {
			g.addTo(p[0], p[1])
		}
		g.addTo(total, p[0])
	})
	g.enter(total, sum)
	g.ADDQ(xrs, x)
	g.ADDQ(operand.Imm(4), shift)
	g.ADDQ(operand.Imm(4), sum)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}

func (g *gen) expRow() {
	g.routine("exp", "n int, dst, x *float32, shift float32) float32", "sets dst = exp(x - shift) and returns Σ dst.")
	n, dst, x := g.arg("n"), g.arg("dst"), g.arg("x")
	shift, e := g.param("shift"), g.exponent()
	sum := g.zero()
	g.loop(n, 1, func(int) {
		y := g.exp(e, g.sub(g.load(x, 0), g.get(shift)))
		g.store(y, dst, 0)
		g.addTo(sum, g.valid(y))
	})
	g.results(g.total([]vec{sum}))
}

// eluPlusOne emits e^min(x,0) + max(x,0); the exponential of 0 is exactly 1.
func (g *gen) eluPlusOne() {
	g.routine("eluPlusOne", "n int, dst, x *float32)", "sets dst to x + 1 where x > 0, and e^x elsewhere.")
	n, dst, x := g.arg("n"), g.arg("dst"), g.arg("x")
	e, zero := g.exponent(), g.constant(0)
	g.loop(n, 1, func(int) {
		y := g.exp(e, g.min(g.load(x, 0), g.get(zero)))
		g.addTo(y, g.max(g.load(x, 0), g.get(zero)))
		g.store(y, dst, 0)
	})
	g.finish()
}

func (g *gen) eluPlusOneGrad() {
	g.routine("eluPlusOneGrad", "n int, dx, dy, x *float32)", "sets dx to dy where x > 0, and dy∘e^x elsewhere.")
	n, dx, dy, x := g.arg("n"), g.arg("dx"), g.arg("dy"), g.arg("x")
	e, zero := g.exponent(), g.constant(0)
	g.loop(n, 1, func(int) {
		y := g.exp(e, g.min(g.load(x, 0), g.get(zero)))
		g.store(g.mul(y, g.load(dy, 0)), dx, 0)
	})
	g.finish()
}
