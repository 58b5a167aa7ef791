package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectors emits the routines over rows of numbers.
func vectors(g *gen) {
	g.axpy()
	g.scale()
	g.binary("add", "sets dst = x + y.", g.add)
	g.binary("mul", "sets dst = x∘y.", g.mul)
	g.mulAdd()
	g.addCarry("addCarry", "adds x to hi + lo.", false)
	g.addCarry("swapCarry", "adds x to hi + lo and leaves hi in x.", true)
	g.dot()
	g.sum()
	g.maximum()
	g.topTwo()
	g.polyRows()
	g.mulRows()
	g.scaleRows()
	g.mixRows()
	g.clearRows()
	g.addRows()
	g.sumRows()
	g.rowDots()
	g.expRow()
	g.expRows()
	g.gelu()
	g.geluGrad()
	g.erfGELU()
	g.erfGELUGrad()
	g.eluPlusOne()
	g.eluPlusOneGrad()
	g.layerNorm()
	g.layerNormGrad()
	g.adamW()
	g.columns()
	switch {
	case g.neon:
		g.transposeNEON()
	case !g.avx512:
		g.transpose()
	}
}

// unroll is the number of vecs that short loop bodies work on at a time.
const unroll = 4

func (g *gen) axpy() {
	g.routine("axpy", "n int, dst *float32, a float32, x *float32)", "sets dst += a·x.")
	n, dst, x := g.arg("n"), g.arg("dst"), g.arg("x")
	a := g.hold(g.param("a"))
	g.loop(n, unroll, func(vecs int) {
		for u := range vecs {
			d := g.load(dst, u)
			g.accumulate(d, g.load(x, u), g.get(a))
			g.store(d, dst, u)
		}
	})
	g.finish()
}

func (g *gen) scale() {
	g.routine("scale", "n int, dst *float32, a float32, x *float32)", "sets dst = a·x.")
	n, dst, x := g.arg("n"), g.arg("dst"), g.arg("x")
	a := g.hold(g.param("a"))
	g.loop(n, unroll, func(vecs int) {
		for u := range vecs {
			g.store(g.mul(g.load(x, u), g.get(a)), dst, u)
		}
	})
	g.finish()
}

// binary emits dst = f(x, y).
func (g *gen) binary(name, doc string, f func(x, y vec) vec) {
	g.routine(name, "n int, dst, x, y *float32)", doc)
	n, dst, x, y := g.arg("n"), g.arg("dst"), g.arg("x"), g.arg("y")
	g.loop(n, unroll, func(vecs int) {
		for u := range vecs {
			g.store(f(g.load(x, u), g.load(y, u)), dst, u)
		}
	})
	g.finish()
}

func (g *gen) mulAdd() {
	g.routine("mulAdd", "n int, dst, x, y *float32)", "sets dst += x∘y.")
	n, dst, x, y := g.arg("n"), g.arg("dst"), g.arg("x"), g.arg("y")
	g.loop(n, unroll, func(vecs int) {
		for u := range vecs {
			d := g.load(dst, u)
			g.accumulate(d, g.load(x, u), g.load(y, u))
			g.store(d, dst, u)
		}
	})
	g.finish()
}

// addCarry adds a number to an unevaluated sum of two: Knuth's two-sum, whose
// error joins lo, and then the fast one, which makes hi the rounding of both.
func (g *gen) addCarry(name, doc string, swap bool) {
	g.routine(name, "n int, hi, lo, x *float32)", doc)
	n, hi, lo, x := g.arg("n"), g.arg("hi"), g.arg("lo"), g.arg("x")
	g.loop(n, 1, func(int) {
		a, b := g.load(hi, 0), g.load(x, 0)
		if swap {
			g.store(a, x, 0)
		}
		s := g.add(a, b)
		part := g.sub(s, a)
		rest := g.add(g.sub(a, g.sub(s, part)), g.sub(b, part))
		rest = g.add(rest, g.load(lo, 0))
		sum := g.add(s, rest)
		g.store(sum, hi, 0)
		g.store(g.sub(rest, g.sub(sum, s)), lo, 0)
	})
	g.finish()
}

func (g *gen) dot() {
	g.routine("dot", "n int, x, y *float32) float32", "returns Σ x·y.")
	n, x, y := g.arg("n"), g.arg("x"), g.arg("y")
	sums := g.zeros(unroll)
	g.loop(n, unroll, func(vecs int) {
		for u := range vecs {
			g.accumulate(sums[u], g.load(x, u), g.load(y, u))
		}
	})
	g.results(g.total(sums))
}

func (g *gen) sum() {
	g.routine("sum", "n int, x *float32) float32", "returns Σ x.")
	n, x := g.arg("n"), g.arg("x")
	sums := g.zeros(unroll)
	g.loop(n, unroll, func(vecs int) {
		for u := range vecs {
			g.addTo(sums[u], g.load(x, u))
		}
	})
	g.results(g.total(sums))
}

// maximum keeps the largest number of each lane, in which NaNs get lost, and
// beside it the largest magnitude as an integer, in which a NaN is above Inf.
func (g *gen) maximum() {
	g.routine("max", "n int, x *float32) float32", "returns max x, or NaN if x holds one.")
	n, x := g.arg("n"), g.arg("x")
	lowest := g.hold(g.constant(float32(math.Inf(-1))))
	magnitude := g.hold(g.constant(math.Float32frombits(0x7fffffff)))
	best, size := g.copy(lowest.held), g.zero()
	g.loop(n, 1, func(int) {
		v := g.load(x, 0)
		if g.tail {
			v = g.pad(v, lowest.held)
		}
		m := g.emitBinary(g.VANDPS, v, magnitude.held)
		for h := range v {
			g.VPMAXSD(m[h], size[h], size[h])
			g.VMAXPS(best[h], v[h], best[h])
		}
	})
	result, largest := g.fold(g.VMAXPS, best), g.fold(g.VPMAXSD, size)
	bits := g.GP32()
	g.VMOVD(largest, bits)
	number := g.label("number")
	g.CMPL(bits, operand.U32(math.Float32bits(float32(math.Inf(1)))))
	g.JLE(operand.LabelRef(number))
	g.VMOVAPS(largest, result)
	g.Label(number)
	g.results(result)
}

// topTwo keeps for each lane of a row the largest number, where it is, and the largest of the others.
func (g *gen) topTwo() {
	g.routine("topTwo", "rows, n int, x *float32, xrs int, y *float32, first int32, best, next *float32, at *int32)",
		"keeps the largest numbers of each lane of n > 0 numbers x - y of each row, where the first is, and the largest of the others.")
	const lessThan = 0x11
	rows, x, xrs, n := g.arg("rows"), g.arg("x"), g.stride("xrs"), g.arg("n")
	best, next, at := g.arg("best"), g.arg("next"), g.arg("at")
	g.SHLQ(operand.Imm(2), n) // bytes
	step := g.get(num{mem: g.word(lanes)})[0]
	place := func(p reg.Register, h int) operand.Mem { return operand.Mem{Base: p, Disp: h * g.size()} }
	indices := g.counting()
	row := g.label("row")
	g.Label(row)
	b, s, i, c := g.vec(), g.vec(), g.vec(), g.vec()
	start := g.get(num{mem: g.address("first")})
	for h := range b {
		g.VMOVUPS(place(best, h), b[h])
		g.VMOVUPS(place(next, h), s[h])
		g.VMOVUPS(place(at, h), i[h])
		g.VMOVUPS(indices.Offset(h*g.size()), c[h])
		g.VPADDD(start[h], c[h], c[h])
	}
	p, q, end := g.pointer(x), g.arg("y"), g.pointer(x)
	g.ADDQ(n, end)
	again := g.label("loop")
	g.Label(again)
	for h := range b {
		d, y, low := g.register(), g.register(), g.register()
		g.VMOVUPS(place(p, h), d)
		g.VMOVUPS(place(q, h), y)
		g.VSUBPS(y, d, d)
		g.VMINPS(d, b[h], low)
		g.VMAXPS(low, s[h], s[h])
		if g.avx512 {
			k := g.K()
			g.VCMPPS(operand.Imm(lessThan), d, b[h], k)
			g.VBLENDMPS(c[h], i[h], k, i[h])
		} else {
			larger := g.register()
			g.VCMPPS(operand.Imm(lessThan), d, b[h], larger)
			g.VBLENDVPS(larger, c[h], i[h], i[h])
		}
		g.VMAXPS(b[h], d, b[h])
		g.VPADDD(step, c[h], c[h])
	}
	g.ADDQ(operand.Imm(4*lanes), p)
	g.ADDQ(operand.Imm(4*lanes), q)
	g.CMPQ(p, end)
	g.JLT(operand.LabelRef(again))
	for h := range b {
		g.VMOVUPS(b[h], place(best, h))
		g.VMOVUPS(s[h], place(next, h))
		g.VMOVUPS(i[h], place(at, h))
	}
	g.ADDQ(xrs, x)
	for _, r := range []reg.GPVirtual{best, next, at} {
		g.ADDQ(operand.Imm(4*lanes), r)
	}
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}

// pad is v with lanes past the end taken from other.
func (g *gen) pad(v, other vec) vec {
	d := g.vec()
	for h := range d {
		if g.avx512 {
			g.VBLENDMPS(v[h], other[h], g.kmask, d[h])
		} else {
			g.VBLENDVPS(g.ymask[h], v[h], other[h], d[h])
		}
	}
	return d
}

// polyRows has four vecs in flight and reads x again at every power, so that
// AVX2's registers hold them.
func (g *gen) polyRows() {
	g.routine("polyRows", "rows, n int, dst, x *float32, rs, terms int, coef, sum *float32)",
		"sets n numbers of each row of dst to Σ_l coef[l]·x^l for terms > 0 coefficients and adds their sum to sum.")
	rows, dst, x, rs := g.arg("rows"), g.arg("dst"), g.arg("x"), g.stride("rs")
	terms, coef, sum := g.arg("terms"), g.arg("coef"), g.arg("sum")
	g.DECQ(terms)
	row := g.label("row")
	g.Label(row)
	n, total := g.arg("n"), g.zero()
	g.loop(n, unroll, func(vecs int) {
		at := func(l reg.Register) num {
			return num{mem: operand.Mem{Base: coef, Index: l, Scale: 4}}
		}
		l := g.GP64()
		g.MOVQ(terms, l)
		var p []vec
		top := g.get(at(l))
		for range vecs {
			p = append(p, g.copy(top))
		}
		var v vec
		if vecs == 1 {
			v = g.load(x, 0)
		}
		power, done := g.label("power"), g.label("done")
		g.TESTQ(l, l)
		g.JZ(operand.LabelRef(done))
		g.Label(power)
		g.DECQ(l)
		c := g.get(at(l))
		for u := range vecs {
			if vecs == 1 {
				g.horner(p[u], v, c)
				continue
			}
			for h, r := range p[u] {
				g.VFMADD132PS(g.vecAddress(x, u).Offset(h*g.size()), c[h], r)
			}
		}
		g.TESTQ(l, l)
		g.JNZ(operand.LabelRef(power))
		g.Label(done)
		for u := range vecs {
			g.store(p[u], dst, u)
			p[u] = g.valid(p[u])
		}
		for ; len(p) > 1; p = p[:len(p)/2] {
			for u := range len(p) / 2 {
				g.addTo(p[u], p[len(p)/2+u])
			}
		}
		g.addTo(total, p[0])
	})
	g.enter(total, sum)
	g.ADDQ(rs, dst)
	g.ADDQ(rs, x)
	g.ADDQ(operand.Imm(4), sum)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}

// enter adds the lanes of v to the number at p.
func (g *gen) enter(v vec, p reg.Register) {
	m := operand.Mem{Base: p}
	all := g.fold(g.VADDPS, v)
	g.VADDSS(m, all, all)
	g.VMOVSS(all, m)
}

func (g *gen) mulRows() {
	g.routine("mulRows", "rows, n int, dst, x *float32, rs int, a *float32)", "sets n numbers of each row dst = (dst + a)∘x.")
	rows, dst, x, rs, a := g.arg("rows"), g.arg("dst"), g.arg("x"), g.stride("rs"), g.arg("a")
	row := g.label("row")
	g.Label(row)
	n, by := g.arg("n"), g.get(num{mem: operand.Mem{Base: a}})
	g.loop(n, unroll, func(vecs int) {
		for u := range vecs {
			g.store(g.mul(g.add(g.load(dst, u), by), g.load(x, u)), dst, u)
		}
	})
	g.ADDQ(rs, dst)
	g.ADDQ(rs, x)
	g.ADDQ(operand.Imm(4), a)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}

func (g *gen) scaleRows() {
	g.routine("scaleRows", "rows, n int, dst *float32, drs int, x *float32, xrs int, a *float32)", "sets n numbers of each row dst = a·x.")
	rows, dst, drs := g.arg("rows"), g.arg("dst"), g.stride("drs")
	x, xrs, a := g.arg("x"), g.stride("xrs"), g.arg("a")
	row := g.label("row")
	g.Label(row)
	n, by := g.arg("n"), g.get(num{mem: operand.Mem{Base: a}})
	g.loop(n, unroll, func(vecs int) {
		for u := range vecs {
			g.store(g.mul(g.load(x, u), by), dst, u)
		}
	})
	g.ADDQ(drs, dst)
	g.ADDQ(xrs, x)
	g.ADDQ(operand.Imm(4), a)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}

func (g *gen) mixRows() {
	g.routine("mixRows", "rows, n int, dst *float32, drs int, x *float32, xrs int, a, y *float32, yrs int, b *float32)", "sets n numbers of each row dst = a·x + b·y.")
	rows, dst, drs := g.arg("rows"), g.arg("dst"), g.stride("drs")
	x, xrs, a := g.arg("x"), g.stride("xrs"), g.arg("a")
	y, yrs, b := g.arg("y"), g.stride("yrs"), g.arg("b")
	row := g.label("row")
	g.Label(row)
	ax, by := g.get(num{mem: operand.Mem{Base: a}}), g.get(num{mem: operand.Mem{Base: b}})
	g.loop(g.arg("n"), unroll, func(vecs int) {
		for u := range vecs {
			d := g.mul(g.load(x, u), ax)
			g.accumulate(d, g.load(y, u), by)
			g.store(d, dst, u)
		}
	})
	g.ADDQ(drs, dst)
	g.ADDQ(xrs, x)
	g.ADDQ(yrs, y)
	g.ADDQ(operand.Imm(4), a)
	g.ADDQ(operand.Imm(4), b)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}

func (g *gen) clearRows() {
	g.routine("clearRows", "rows, n int, x *float32, xrs int)", "sets n numbers of each row to 0.")
	rows, x, xrs := g.arg("rows"), g.arg("x"), g.stride("xrs")
	zero := g.zero()
	row := g.label("row")
	g.Label(row)
	g.loop(g.arg("n"), unroll, func(vecs int) {
		for u := range vecs {
			g.store(zero, x, u)
		}
	})
	g.ADDQ(xrs, x)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}

func (g *gen) addRows() {
	g.routine("addRows", "rows, n int, dst *float32, drs int, x *float32, xrs int, y *float32, yrs int)", "sets n numbers of each row dst = x + y.")
	rows, dst, drs := g.arg("rows"), g.arg("dst"), g.stride("drs")
	x, xrs, y, yrs := g.arg("x"), g.stride("xrs"), g.arg("y"), g.stride("yrs")
	row := g.label("row")
	g.Label(row)
	g.loop(g.arg("n"), unroll, func(vecs int) {
		for u := range vecs {
			g.store(g.add(g.load(x, u), g.load(y, u)), dst, u)
		}
	})
	g.ADDQ(drs, dst)
	g.ADDQ(xrs, x)
	g.ADDQ(yrs, y)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}

// sumRows goes down the rows of some columns, whose sums stay in registers.
func (g *gen) sumRows() {
	g.routine("sumRows", "n, rows int, sum, x *float32, xrs int)", "adds each row of x to sum, one after another.")
	n, rows, sum := g.arg("n"), g.arg("rows"), g.arg("sum")
	x, xrs := g.arg("x"), g.stride("xrs")
	g.loop(n, unroll, func(vecs int) {
		var s []vec
		for u := range vecs {
			s = append(s, g.load(sum, u))
		}
		g.forEachRow(rows, []reg.GPVirtual{x}, []reg.GPVirtual{xrs}, func(row []reg.GPVirtual) {
			for u := range vecs {
				g.addTo(s[u], g.load(row[0], u))
			}
		})
		for u := range vecs {
			g.store(s[u], sum, u)
		}
	})
	g.finish()
}

func (g *gen) rowDots() {
	g.routine("rowDots", "rows, n int, dst, x *float32, xrs int, y *float32, yrs int)", "sets dst[r] = Σ x_r·y_r of n numbers of each row.")
	rows, dst := g.arg("rows"), g.arg("dst")
	x, xrs, y, yrs := g.arg("x"), g.stride("xrs"), g.arg("y"), g.stride("yrs")
	row := g.label("row")
	g.Label(row)
	sums := g.zeros(unroll)
	g.loop(g.arg("n"), unroll, func(vecs int) {
		for u := range vecs {
			g.accumulate(sums[u], g.load(x, u), g.load(y, u))
		}
	})
	g.VMOVSS(g.total(sums), operand.Mem{Base: dst})
	g.ADDQ(xrs, x)
	g.ADDQ(yrs, y)
	g.ADDQ(operand.Imm(4), dst)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}
