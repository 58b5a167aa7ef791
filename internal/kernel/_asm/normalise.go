package main

import "github.com/mmcloughlin/avo/reg"

// centre sums deviations from the first row, which are exactly zero in a column of equal numbers, and
// subtracts the mean twice: the second time removes the rounding errors of the first.
func (g *gen) centre() {
	g.routine("centre", "n, rows int, x *float32, rs int, each float32)",
		"subtracts from each column its mean, for rows > 0 and each = 1/rows.")
	n, rows, x, rs := g.arg("n"), g.arg("rows"), g.arg("x"), g.stride("rs")
	each := g.param("each")
	column, strides := []reg.GPVirtual{x}, []reg.GPVirtual{rs}
	g.loop(n, 2, func(vecs int) {
		var first []vec
		for u := range vecs {
			first = append(first, g.load(x, u))
		}
		sum := g.zeros(vecs)
		g.forEachRow(rows, column, strides, func(row []reg.GPVirtual) {
			for u := range vecs {
				d := g.load(row[0], u)
				g.lessen(d, first[u])
				g.addTo(sum[u], d)
			}
		})
		for u := range vecs {
			g.scaleBy(sum[u], g.get(each))
		}
		rest := g.zeros(vecs)
		g.forEachRow(rows, column, strides, func(row []reg.GPVirtual) {
			for u := range vecs {
				d := g.load(row[0], u)
				g.lessen(d, first[u])
				g.lessen(d, sum[u])
				g.addTo(rest[u], d)
				g.store(d, row[0], u)
			}
		})
		for u := range vecs {
			g.scaleBy(rest[u], g.get(each))
		}
		g.forEachRow(rows, column, strides, func(row []reg.GPVirtual) {
			for u := range vecs {
				d := g.load(row[0], u)
				g.lessen(d, rest[u])
				g.store(d, row[0], u)
			}
		})
	})
	g.finish()
}

func (g *gen) normalise() {
	g.routine("normalise", "n, rows int, x *float32, rs int, length, limit float32)",
		"gives each column the 2-norm length, or makes it zero where its norm is below limit, for rows > 0.")
	n, rows, x, rs := g.arg("n"), g.arg("rows"), g.arg("x"), g.stride("rs")
	length := g.param("length")
	column, strides := []reg.GPVirtual{x}, []reg.GPVirtual{rs}
	g.loop(n, 1, func(int) {
		size := g.inner(rows, x, x, rs)
		g.each(size, g.VSQRTPD)
		factor := g.single(g.quotient(g.half(g.get(length), 0), size))
		g.forEachRow(rows, column, strides, func(row []reg.GPVirtual) {
			g.store(g.mul(g.load(row[0], 0), factor), row[0], 0)
		})
	})
	g.finish()
}

func (g *gen) normaliseGrad() {
	g.routine("normaliseGrad", "n, rows int, dx, x *float32, rs int, length, limit float32)",
		"sets dx = length/|x|·(dx - x·(x·dx)/|x|²) in each column, or zero where |x| is below limit, for rows > 0.")
	n, rows, dx, x, rs := g.arg("n"), g.arg("rows"), g.arg("dx"), g.arg("x"), g.stride("rs")
	length := g.param("length")
	g.loop(n, 1, func(int) {
		size := g.inner(rows, x, x, rs)
		along := g.inner(rows, x, dx, rs)
		for h := range along {
			g.VDIVPD(size[h], along[h], along[h])
		}
		g.each(size, g.VSQRTPD)
		slope := g.single(g.unless(along, size))
		factor := g.single(g.quotient(g.half(g.get(length), 0), size))
		g.forEachRow(rows, []reg.GPVirtual{dx, x}, []reg.GPVirtual{rs, rs}, func(row []reg.GPVirtual) {
			d := g.load(row[0], 0)
			g.reduce(d, g.load(row[1], 0), slope)
			g.store(g.mul(d, factor), row[0], 0)
		})
	})
	g.finish()
}

func (g *gen) reflect() {
	g.routine("reflect", "n, rows int, x *float32, rs int, a float32)",
		"adds a times row rows to rows > 0 rows, and sets it to zero.")
	n, rows, x, rs := g.arg("n"), g.arg("rows"), g.arg("x"), g.stride("rs")
	a := g.param("a")
	last := g.pointer(rs)
	g.IMULQ(rows, last)
	g.ADDQ(x, last)
	g.loop(n, 2, func(vecs int) {
		var tail []vec
		for u := range vecs {
			tail = append(tail, g.mul(g.load(last, u), g.get(a)))
			g.store(g.zero(), last, u)
		}
		g.forEachRow(rows, []reg.GPVirtual{x}, []reg.GPVirtual{rs}, func(row []reg.GPVirtual) {
			for u := range vecs {
				g.store(g.add(g.load(row[0], u), tail[u]), row[0], u)
			}
		})
	})
	g.finish()
}

func (g *gen) reflectGrad() {
	g.routine("reflectGrad", "n, rows int, x *float32, rs int, a float32)",
		"sets row rows to a times the sum of rows > 0 rows.")
	n, rows, x, rs := g.arg("n"), g.arg("rows"), g.arg("x"), g.stride("rs")
	a := g.param("a")
	last := g.pointer(rs)
	g.IMULQ(rows, last)
	g.ADDQ(x, last)
	g.loop(n, 2, func(vecs int) {
		sum := g.zeros(vecs)
		g.forEachRow(rows, []reg.GPVirtual{x}, []reg.GPVirtual{rs}, func(row []reg.GPVirtual) {
			for u := range vecs {
				g.addTo(sum[u], g.load(row[0], u))
			}
		})
		for u := range vecs {
			g.store(g.mul(sum[u], g.get(a)), last, u)
		}
	})
	g.finish()
}

func (g *gen) rotate() {
	g.routine("rotate", "n, rows int, x, y *float32, rs int, cos, sin *float32, cs int)",
		"sets x = x∘cos - y∘sin and y = y∘cos + x∘sin, for rows > 0.")
	n, rows := g.arg("n"), g.arg("rows")
	x, y, rs, cos, sin, cs := g.arg("x"), g.arg("y"), g.stride("rs"), g.arg("cos"), g.arg("sin"), g.stride("cs")
	g.loop(n, 1, func(int) {
		g.forEachRow(rows, []reg.GPVirtual{x, y, cos, sin}, []reg.GPVirtual{rs, rs, cs, cs}, func(row []reg.GPVirtual) {
			a, b, c, s := g.load(row[0], 0), g.load(row[1], 0), g.load(row[2], 0), g.load(row[3], 0)
			d := g.mul(a, c)
			g.reduce(d, b, s)
			g.store(d, row[0], 0)
			d = g.mul(b, c)
			g.accumulate(d, a, s)
			g.store(d, row[1], 0)
		})
	})
	g.finish()
}
