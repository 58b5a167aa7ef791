package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// columns emits the routines over matrices whose columns are tokens: a vec
// holds one row of 16 of them, and a loop goes down the rows.
func (g *gen) columns() {
	g.products()
	g.featureSums()
	g.featureDots()
	g.featureGrad()
	g.dots()
	g.centre()
	g.normalise()
	g.normaliseGrad()
	g.reflect()
	g.reflectGrad()
	g.rotate()
}

// pointer is a register of its own with the value of r.
func (g *gen) pointer(r reg.Register) reg.GPVirtual {
	p := g.GP64()
	g.MOVQ(r, p)
	return p
}

// down emits body for each of count rows, with the pointers moved from row to
// row by the strides that go with them.
func (g *gen) down(count reg.Register, pointers, strides []reg.GPVirtual, body func(p []reg.GPVirtual)) {
	left := g.pointer(count)
	p := make([]reg.GPVirtual, len(pointers))
	for i := range p {
		p[i] = g.pointer(pointers[i])
	}
	again := g.label("row")
	g.Label(again)
	body(p)
	for i := range p {
		g.ADDQ(strides[i], p[i])
	}
	g.DECQ(left)
	g.JNZ(operand.LabelRef(again))
}

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
		g.down(rows, []reg.GPVirtual{dst, x}, []reg.GPVirtual{drs, xrs}, func(row []reg.GPVirtual) {
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
		to, from := g.below(dst, ld, count), g.below(x, ld, count)
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

// below is row and the rows that follow it, in registers.
func (g *gen) below(row, stride reg.GPVirtual, count int) []reg.GPVirtual {
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
	half := make([]reg.VecVirtual, len(sums))
	for i, v := range sums {
		half[i] = g.YMM()
		if g.wide {
			y := g.YMM()
			g.VEXTRACTF64X4(operand.Imm(1), v[0], y)
			g.VADDPS(y, v[0].AsY(), half[i])
		} else {
			g.VADDPS(v[1], v[0], half[i])
		}
	}
	for len(half) > 1 {
		for i := 0; i < len(half); i += 2 {
			g.VHADDPS(half[i+1], half[i], half[i/2])
		}
		half = half[:len(half)/2]
	}
	s := half[0]
	if len(sums) == 1 {
		g.VHADDPS(s, s, s)
		g.VHADDPS(s, s, s)
	}
	x := g.XMM()
	g.VEXTRACTF128(operand.Imm(1), s, x)
	g.VADDPS(x, s.AsX(), x)
	return x
}

// centre sums deviations from the first row, which are exactly zero in a
// column of equal numbers, and takes the mean off twice: the second time what
// the first has left by rounding.
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
		g.down(rows, column, strides, func(row []reg.GPVirtual) {
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
		g.down(rows, column, strides, func(row []reg.GPVirtual) {
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
		g.down(rows, column, strides, func(row []reg.GPVirtual) {
			for u := range vecs {
				d := g.load(row[0], u)
				g.lessen(d, rest[u])
				g.store(d, row[0], u)
			}
		})
	})
	g.finish()
}

// tiny is the smallest normal number.
const tiny = 0x1p-126

func (g *gen) normalise() {
	g.routine("normalise", "n, rows int, x *float32, rs int, length float32)",
		"gives each column the 2-norm length, or makes it zero, for rows > 0.")
	n, rows, x, rs := g.arg("n"), g.arg("rows"), g.arg("x"), g.stride("rs")
	length := g.param("length")
	column, strides := []reg.GPVirtual{x}, []reg.GPVirtual{rs}
	g.loop(n, 1, func(int) {
		size := g.inner(rows, x, x, rs)
		g.each(size, g.VSQRTPD)
		factor := g.single(g.quotient(g.half(g.get(length), 0), size))
		g.down(rows, column, strides, func(row []reg.GPVirtual) {
			g.store(g.mul(g.load(row[0], 0), factor), row[0], 0)
		})
	})
	g.finish()
}

func (g *gen) normaliseGrad() {
	g.routine("normaliseGrad", "n, rows int, dx, x *float32, rs int, length float32)",
		"sets dx = length/|x|·(dx - x·(x·dx)/|x|²) in each column, or zero, for rows > 0.")
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
		g.down(rows, []reg.GPVirtual{dx, x}, []reg.GPVirtual{rs, rs}, func(row []reg.GPVirtual) {
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
		g.down(rows, []reg.GPVirtual{x}, []reg.GPVirtual{rs}, func(row []reg.GPVirtual) {
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
		g.down(rows, []reg.GPVirtual{x}, []reg.GPVirtual{rs}, func(row []reg.GPVirtual) {
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
		g.down(rows, []reg.GPVirtual{x, y, cos, sin}, []reg.GPVirtual{rs, rs, cs, cs}, func(row []reg.GPVirtual) {
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

// doubles is 16 lanes of float64.
type doubles []reg.VecVirtual

// double is v in float64.
func (g *gen) double(v vec) doubles {
	var d doubles
	for h := range v {
		d = append(d, g.half(v, 2*h), g.half(v, 2*h+1))
	}
	return d
}

// half is half i of the registers of v in float64.
func (g *gen) half(v vec, i int) reg.VecVirtual {
	d := g.register()
	switch {
	case g.wide && i == 0:
		g.VCVTPS2PD(v[0].AsY(), d)
	case g.wide:
		y := g.YMM()
		g.VEXTRACTF64X4(operand.Imm(1), v[0], y)
		g.VCVTPS2PD(y, d)
	case i%2 == 0:
		g.VCVTPS2PD(v[i/2].AsX(), d)
	default:
		x := g.XMM()
		g.VEXTRACTF128(operand.Imm(1), v[i/2], x)
		g.VCVTPS2PD(x, d)
	}
	return d
}

// single is d rounded to float32.
func (g *gen) single(d doubles) vec {
	v := g.vec()
	for h := range v {
		if g.wide {
			lo, hi := g.YMM(), g.YMM()
			g.VCVTPD2PS(d[0], lo)
			g.VCVTPD2PS(d[1], hi)
			g.VINSERTF64X4(operand.Imm(1), hi, lo.AsZ(), v[h])
		} else {
			lo, hi := g.XMM(), g.XMM()
			g.VCVTPD2PSY(d[2*h], lo)
			g.VCVTPD2PSY(d[2*h+1], hi)
			g.VINSERTF128(operand.Imm(1), hi, lo.AsY(), v[h])
		}
	}
	return v
}

// each applies op to d in place.
func (g *gen) each(d doubles, op func(...operand.Op)) {
	for _, r := range d {
		op(r, r)
	}
}

// inner is Σ x_r∘y_r over rows, in float64. It takes a register of each at a
// time: whole vecs would be more than AVX2 has room for.
func (g *gen) inner(rows, x, y, rs reg.GPVirtual) doubles {
	sum := g.double(g.zero())
	g.down(rows, []reg.GPVirtual{x, y}, []reg.GPVirtual{rs, rs}, func(row []reg.GPVirtual) {
		a, b := g.vec(), g.vec()
		for h := range a {
			g.loadPart(row[0], 0, h, a[h])
			if x != y {
				g.loadPart(row[1], 0, h, b[h])
			}
			for i := 2 * h; i < 2*h+2; i++ {
				p := g.half(a, i)
				q := p
				if x != y {
					q = g.half(b, i)
				}
				g.VFMADD231PD(p, q, sum[i])
			}
		}
	})
	return sum
}

// quotient is x/size, with zero in place of lanes where size is below tiny.
func (g *gen) quotient(x reg.VecVirtual, size doubles) doubles {
	d := make(doubles, len(size))
	for h := range d {
		d[h] = g.register()
		g.VDIVPD(size[h], x, d[h])
	}
	return g.unless(d, size)
}

// unless is d with zero in place of lanes where size is below tiny. It takes d
// over.
func (g *gen) unless(d, size doubles) doubles {
	const notLess = 5
	limit := g.half(g.get(g.constant(tiny)), 0)
	for h := range d {
		if g.wide {
			k := g.K()
			g.VCMPPD(operand.Imm(notLess), limit, size[h], k)
			g.VMOVAPD_Z(d[h], k, d[h])
		} else {
			mask := g.YMM()
			g.VCMPPD(operand.Imm(notLess), limit, size[h], mask)
			g.VANDPD(mask, d[h], d[h])
		}
	}
	return d
}
