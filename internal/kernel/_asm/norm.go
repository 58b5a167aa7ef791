package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// spread is the low lane of r in every lane.
func (g *gen) spread(r reg.Register) num {
	d := g.register()
	g.VBROADCASTSS(r, d)
	return num{held: g.every(d)}
}

// layerNorm goes over a row three times: for its mean, its variance and what
// becomes of it.
func (g *gen) layerNorm() {
	g.routine("layerNorm", "rows, n int, dst *float32, drs int, x *float32, xrs int, gain, bias, stats *float32, count, eps float32)",
		"sets n numbers of each row dst = (x - mean)·rstd∘gain + bias, and stats to its mean and rstd. Count is n.")
	rows, dst, x, stats := g.arg("rows"), g.arg("dst"), g.arg("x"), g.arg("stats")
	count := g.address("count")
	row := g.label("row")
	g.Label(row)

	sums := g.zeros(unroll)
	g.loop(g.arg("n"), unroll, func(vecs int) {
		for u := range vecs {
			g.addTo(sums[u], g.load(x, u))
		}
	})
	sum := g.total(sums)
	g.VDIVSS(count, sum, sum)
	g.VMOVSS(sum, operand.Mem{Base: stats})
	mean := g.spread(sum)

	sums = g.zeros(2)
	g.loop(g.arg("n"), len(sums), func(vecs int) {
		for u := range vecs {
			d := g.valid(g.sub(g.load(x, u), g.get(mean)))
			g.accumulate(sums[u], d, d)
		}
	})
	sum = g.total(sums)
	g.VDIVSS(count, sum, sum)
	g.VADDSS(g.address("eps"), sum, sum)
	g.VSQRTSS(sum, sum, sum)
	inverse := g.get(g.stored(1))[0].AsX()
	g.VDIVSS(sum, inverse, inverse)
	g.VMOVSS(inverse, operand.Mem{Base: stats, Disp: 4})
	rstd := g.spread(inverse)

	gain, bias := g.arg("gain"), g.arg("bias")
	plain, done := g.label("plain"), g.label("normal")
	normalize := func(biased bool) {
		g.loop(g.arg("n"), 2, func(vecs int) {
			for u := range vecs {
				h := g.mul(g.sub(g.load(x, u), g.get(mean)), g.get(rstd))
				if biased {
					g.horner(h, g.load(gain, u), g.load(bias, u))
				} else {
					h = g.mul(h, g.load(gain, u))
				}
				g.store(h, dst, u)
			}
		})
	}
	g.TESTQ(bias, bias)
	g.JZ(operand.LabelRef(plain))
	normalize(true)
	g.JMP(operand.LabelRef(done))
	g.Label(plain)
	normalize(false)
	g.Label(done)

	g.ADDQ(g.stride("drs"), dst)
	g.ADDQ(g.stride("xrs"), x)
	g.ADDQ(operand.Imm(8), stats)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}

// layerNormGrad goes over a row for the sums that its gradient needs, and for
// the gradients of gain and bias on the way, and then for its own gradient. That
// is rounded before it is added, as if it had been in a row by itself.
func (g *gen) layerNormGrad() {
	g.routine("layerNormGrad", "rows, n int, dx *float32, dxrs int, dgain, dbias, dy *float32, dyrs int, x *float32, xrs int, gain, stats *float32, count float32)",
		"adds to n numbers of each row dx the gradient rstd·(dy∘gain - s1 - s2·(x - mean)·rstd), s1 and s2 being the means of dy∘gain and dy∘gain∘(x - mean)·rstd, and to dgain and dbias, unless nil, those of gain and bias. Count is n.")
	rows, dx, dy, x, stats := g.arg("rows"), g.arg("dx"), g.arg("dy"), g.arg("x"), g.arg("stats")
	count := g.address("count")
	row := g.label("row")
	g.Label(row)
	mean, rstd := g.hold(g.num(operand.Mem{Base: stats})), g.hold(g.num(operand.Mem{Base: stats, Disp: 4}))
	gain := g.arg("gain")
	normal := func() vec {
		return g.mul(g.sub(g.load(x, 0), g.get(mean)), g.get(rstd))
	}

	dgain, dbias := g.arg("dgain"), g.arg("dbias")
	s1, s2 := g.zero(), g.zero()
	g.loop(g.arg("n"), 1, func(int) {
		h, y := normal(), g.load(dy, 0)
		where := func(p reg.GPVirtual, body func()) {
			none := g.label("none")
			g.TESTQ(p, p)
			g.JZ(operand.LabelRef(none))
			body()
			g.Label(none)
		}
		where(dgain, func() {
			d := g.load(dgain, 0)
			g.accumulate(d, h, y)
			g.store(d, dgain, 0)
		})
		where(dbias, func() { g.store(g.add(g.load(dbias, 0), y), dbias, 0) })
		d := g.mul(y, g.load(gain, 0))
		g.addTo(s1, d)
		g.accumulate(s2, d, g.valid(h))
	})
	m1, m2 := g.total([]vec{s1}), g.total([]vec{s2})
	g.VDIVSS(count, m1, m1)
	g.VDIVSS(count, m2, m2)
	mean1, mean2 := g.spread(m1), g.spread(m2)

	g.loop(g.arg("n"), 1, func(int) {
		h, d := normal(), g.mul(g.load(dy, 0), g.load(gain, 0))
		d = g.sub(d, g.get(mean1))
		g.reduce(d, h, g.get(mean2))
		g.store(g.add(g.load(dx, 0), g.mul(d, g.get(rstd))), dx, 0)
	})

	g.ADDQ(g.stride("dxrs"), dx)
	g.ADDQ(g.stride("dyrs"), dy)
	g.ADDQ(g.stride("xrs"), x)
	g.ADDQ(operand.Imm(8), stats)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(row))
	g.finish()
}
