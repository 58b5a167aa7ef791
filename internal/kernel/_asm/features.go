package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func (g *gen) products() {
	g.routine("products", "n, rows int, dst *float32, drs int, w, p, x *float32, xrs int)",
		"sets rows dst_r = w[r]·(p∘x_r) for rows > 0.")
	n, rows := g.arg("n"), g.arg("rows")
	dst, drs, w, p, x, xrs := g.arg("dst"), g.stride("drs"), g.arg("w"), g.arg("p"), g.arg("x"), g.stride("xrs")
	g.loop(n, unroll, func(vecs int) {
		var prefix []vec
		for u := range vecs {
			prefix = append(prefix, g.load(p, u))
		}
		weight := g.pointer(w)
		g.forEachRow(rows, []reg.GPVirtual{dst, x}, []reg.GPVirtual{drs, xrs}, func(row []reg.GPVirtual) {
			a := g.get(num{mem: operand.Mem{Base: weight}})
			for u := range vecs {
				d := g.mul(prefix[u], g.load(row[1], u))
				g.store(g.mul(d, a), row[0], u)
			}
			g.ADDQ(operand.Imm(4), weight)
		})
	})
	g.finish()
}

// runs emits body for each run of the parameters runs and count: runs that the
// caller has checked. p and x are its rows' addresses, left the number of its
// features, which body uses up.
func (g *gen) runs(ld reg.GPVirtual, rowsOf [2]string, body func(p, x, left reg.GPVirtual)) {
	runs, count := g.arg("runs"), g.arg("count")
	again := g.label("run")
	g.Label(again)
	var row [2]reg.GPVirtual
	for i := range row {
		row[i] = g.GP64()
		g.MOVLQSX(operand.Mem{Base: runs, Disp: 4 * i}, row[i])
		g.IMULQ(ld, row[i])
		g.ADDQ(g.address(rowsOf[i]), row[i])
	}
	left := g.GP64()
	g.MOVLQSX(operand.Mem{Base: runs, Disp: 8}, left)
	g.ADDQ(operand.Imm(12), runs)
	body(row[0], row[1], left)
	g.DECQ(count)
	g.JNZ(operand.LabelRef(again))
}

// featureSums takes four rows at a time, so that four sums are in flight, and
// adds up their lanes together.
func (g *gen) featureSums() {
	g.routine("featureSums", "n, count int, runs *int32, dst, p, x *float32, ld int, y, sums *float32)",
		"sets dst_f = p_P∘x_X for the features of count > 0 runs, and sums[f] = Σ dst_f∘y, for n > 0.")
	frame := g.AllocLocal(24)
	local := func(i int) operand.Mem { return frame.Offset(8 * i) }
	runs, rest, left := local(0), local(1), local(2)
	dst, ld := g.arg("dst"), g.stride("ld")
	at := g.arg("runs")
	g.MOVQ(at, runs)
	n := g.arg("count")
	g.MOVQ(n, rest)

	again := g.label("run")
	g.Label(again)
	at = g.GP64()
	g.MOVQ(runs, at)
	p, x := g.GP64(), g.GP64()
	for i, r := range []reg.GPVirtual{p, x} {
		g.MOVLQSX(operand.Mem{Base: at, Disp: 4 * i}, r)
		g.IMULQ(ld, r)
	}
	g.ADDQ(g.address("p"), p)
	g.ADDQ(g.address("x"), x)
	n = g.GP64()
	g.MOVLQSX(operand.Mem{Base: at, Disp: 8}, n)
	g.MOVQ(n, left)
	g.ADDQ(operand.Imm(12), at)
	g.MOVQ(at, runs)
	single, done := g.label("rest"), g.label("finished")
	for _, count := range []int{4, 1} {
		next := single
		if count == 1 {
			next = done
		}
		rows := g.label("rows")
		g.Label(rows)
		g.CMPQ(left, operand.Imm(uint64(count)))
		g.JLT(operand.LabelRef(next))
		to, from := g.rowPointers(dst, ld, count), g.rowPointers(x, ld, count)
		sums, y := g.zeros(count), g.arg("y")
		g.loop(g.arg("n"), 1, func(int) {
			prefix := g.load(p, 0)
			for i, sum := range sums {
				d := g.load(from[i], 0)
				g.scaleBy(d, prefix)
				g.store(d, to[i], 0)
				g.accumulate(sum, d, g.load(y, 0))
			}
		})
		s, total := g.arg("sums"), g.totals(sums)
		if count == 1 {
			g.VMOVSS(total, operand.Mem{Base: s})
		} else {
			g.VMOVUPS(total, operand.Mem{Base: s})
		}
		g.ADDQ(operand.Imm(uint64(4*count)), s)
		g.MOVQ(s, g.address("sums"))
		for _, r := range [][]reg.GPVirtual{to, from} {
			g.LEAQ(operand.Mem{Base: r[count-1], Index: ld, Scale: 1}, r[0])
		}
		g.SUBQ(operand.Imm(uint64(count)), left)
		g.JMP(operand.LabelRef(rows))
		g.Label(next)
	}
	g.DECQ(rest)
	g.JNZ(operand.LabelRef(again))
	g.finish()
}

// rowPointers returns registers that point to row and to the count-1 rows after row.
func (g *gen) rowPointers(row, stride reg.GPVirtual, count int) []reg.GPVirtual {
	rows := []reg.GPVirtual{row}
	for i := 1; i < count; i++ {
		p := g.GP64()
		g.LEAQ(operand.Mem{Base: rows[i-1], Index: stride, Scale: 1}, p)
		rows = append(rows, p)
	}
	return rows
}

// lessen sets d -= x.
func (g *gen) lessen(d, x vec) {
	for h := range d {
		g.VSUBPS(x[h], d[h], d[h])
	}
}

// scaleBy sets d = d∘x.
func (g *gen) scaleBy(d, x vec) {
	for h := range d {
		g.VMULPS(x[h], d[h], d[h])
	}
}

// featureDots has two vecs in flight: more would not fit AVX2's registers.
func (g *gen) featureDots() {
	g.routine("featureDots", "n, count int, runs *int32, dst, p, x *float32, ld int, w, z, sums *float32)",
		"sets dst_f = w[f]·(p_P∘x_X) for the features of count > 0 runs, and adds each z[f]·dst_f to sums.")
	n, ld, sums := g.arg("n"), g.stride("ld"), g.arg("sums")
	g.loop(n, 2, func(vecs int) {
		dst, w, z := g.arg("dst"), g.arg("w"), g.arg("z")
		var total []vec
		for u := range vecs {
			total = append(total, g.load(sums, u))
		}
		g.runs(ld, [2]string{"p", "x"}, func(p, x, left reg.GPVirtual) {
			var prefix []vec
			for u := range vecs {
				prefix = append(prefix, g.load(p, u))
			}
			again := g.label("row")
			g.Label(again)
			a, b := g.get(num{mem: operand.Mem{Base: w}}), g.get(num{mem: operand.Mem{Base: z}})
			for u := range vecs {
				d := g.load(x, u)
				g.scaleBy(d, prefix[u])
				g.scaleBy(d, a)
				g.store(d, dst, u)
				g.accumulate(total[u], d, b)
			}
			g.ADDQ(ld, x)
			g.ADDQ(ld, dst)
			g.ADDQ(operand.Imm(4), w)
			g.ADDQ(operand.Imm(4), z)
			g.DECQ(left)
			g.JNZ(operand.LabelRef(again))
		})
		for u := range vecs {
			g.store(total[u], sums, u)
		}
	})
	g.finish()
}

// featureGrad has two vecs in flight: more would not fit AVX2's registers. A
// run's own row of dp may be among its rows of dx, and is added to when these
// are done.
func (g *gen) featureGrad() {
	g.routine("featureGrad", "n, count int, runs *int32, dx, dp, d, p, x *float32, ld int, w, z, y *float32)",
		"adds e∘p_P to dx_X and e∘x_X to dp_P, e = w[f]·(d_f + z[f]·y), for the features of count > 0 runs.")
	n, ld, y := g.arg("n"), g.stride("ld"), g.arg("y")
	g.loop(n, 2, func(vecs int) {
		d, w, z := g.arg("d"), g.arg("w"), g.arg("z")
		g.runs(ld, [2]string{"p", "x"}, func(p, x, left reg.GPVirtual) {
			dx, dp := g.counterpart(x, "x", "dx"), g.counterpart(p, "p", "dp")
			var prefix []vec
			for u := range vecs {
				prefix = append(prefix, g.load(p, u))
			}
			sum := g.zeros(vecs)
			again := g.label("row")
			g.Label(again)
			a, b := g.get(num{mem: operand.Mem{Base: w}}), g.get(num{mem: operand.Mem{Base: z}})
			for u := range vecs {
				from := g.load(d, u)
				g.accumulate(from, g.load(y, u), b)
				g.scaleBy(from, a)
				to := g.load(dx, u)
				g.accumulate(to, from, prefix[u])
				g.store(to, dx, u)
				g.accumulate(sum[u], from, g.load(x, u))
			}
			g.ADDQ(operand.Imm(4), w)
			g.ADDQ(operand.Imm(4), z)
			g.ADDQ(ld, d)
			g.ADDQ(ld, dx)
			g.ADDQ(ld, x)
			g.DECQ(left)
			g.JNZ(operand.LabelRef(again))
			for u := range vecs {
				g.store(g.add(g.load(dp, u), sum[u]), dp, u)
			}
		})
	})
	g.finish()
}

// counterpart is where r, which lies behind the parameter from, lies behind the
// parameter to.
func (g *gen) counterpart(r reg.GPVirtual, from, to string) reg.GPVirtual {
	p := g.pointer(r)
	g.SUBQ(g.address(from), p)
	g.ADDQ(g.address(to), p)
	return p
}

// dots takes four rows at a time, so that four sums are in flight, and adds up
// their lanes together.
func (g *gen) dots() {
	g.routine("dots", "n, rows int, dst, x *float32, xrs int, w *float32)", "sets dst[r] = Σ x_r∘w.")
	rows, dst, x, xrs, w := g.arg("rows"), g.arg("dst"), g.arg("x"), g.stride("xrs"), g.arg("w")
	single, done := g.label("rest"), g.label("finished")
	for _, count := range []int{4, 1} {
		next := single
		if count == 1 {
			next = done
		}
		again := g.label("rows")
		g.Label(again)
		g.CMPQ(rows, operand.Imm(uint64(count)))
		g.JLT(operand.LabelRef(next))
		row := []reg.GPVirtual{x}
		for i := 1; i < count; i++ {
			p := g.GP64()
			g.LEAQ(operand.Mem{Base: row[i-1], Index: xrs, Scale: 1}, p)
			row = append(row, p)
		}
		sums := g.zeros(count)
		g.loop(g.arg("n"), 1, func(int) {
			y := g.load(w, 0)
			for i, sum := range sums {
				g.accumulate(sum, g.load(row[i], 0), y)
			}
		})
		total := g.totals(sums)
		if count == 1 {
			g.VMOVSS(total, operand.Mem{Base: dst})
		} else {
			g.VMOVUPS(total, operand.Mem{Base: dst})
		}
		g.LEAQ(operand.Mem{Base: row[count-1], Index: xrs, Scale: 1}, x)
		g.ADDQ(operand.Imm(uint64(4*count)), dst)
		g.SUBQ(operand.Imm(uint64(count)), rows)
		g.JMP(operand.LabelRef(again))
		g.Label(next)
	}
	g.finish()
}

// totals is the sums of the lanes of four vecs, or of one in its low lane.
func (g *gen) totals(sums []vec) reg.VecVirtual {
	if g.neon {
		var lower, upper []reg.VecVirtual
		for _, v := range sums {
			g.VADDPS(v[2], v[0], v[0])
			g.VADDPS(v[3], v[1], v[1])
			lower, upper = append(lower, v[0]), append(upper, v[1])
		}
		x := g.XMM()
		g.VADDPS(g.pairs(upper), g.pairs(lower), x)
		return x
	}
	half := make([]reg.VecVirtual, len(sums))
	for i, v := range sums {
		half[i] = g.YMM()
		if g.avx512 {
			y := g.YMM()
			g.VEXTRACTF64X4(operand.Imm(1), v[0], y)
			g.VADDPS(y, v[0].AsY(), half[i])
		} else {
			g.VADDPS(v[1], v[0], half[i])
		}
	}
	s, x := g.pairs(half), g.XMM()
	g.VEXTRACTF128(operand.Imm(1), s, x)
	g.VADDPS(x, s.AsX(), x)
	return x
}

// pairs adds up neighbours twice: the four lanes of each of four registers, or of
// one. It takes them over.
func (g *gen) pairs(r []reg.VecVirtual) reg.VecVirtual {
	if len(r) == 1 {
		g.VHADDPS(r[0], r[0], r[0])
		g.VHADDPS(r[0], r[0], r[0])
		return r[0]
	}
	for len(r) > 1 {
		for i := 0; i < len(r); i += 2 {
			g.VHADDPS(r[i+1], r[i], r[i/2])
		}
		r = r[:len(r)/2]
	}
	return r[0]
}
