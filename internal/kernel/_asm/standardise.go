package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Sums of squares of float32 from least to most have lost nothing to numbers
// that are too small or too large for it.
const (
	least = 0x1p-60
	most  = 0x1p120
)

// standardise takes the mean off twice, as centre does, but keeps the numbers
// as they are until the last of three passes, when all is known. The first mean
// is rounded, and what that leaves belongs to the second; the squares are of
// numbers less the first mean and have the second taken off. It works on a register of columns at a time, in as many chains of
// sums as a pass has rows in flight. Squares are summed in float32 and those
// sums in float64; a column whose squares float32 cannot hold has them summed
// again in float64.
func (g *gen) standardise() {
	g.routine("standardise", "n, rows int, x *float32, rs int, each, length, limit float32)",
		"gives each column the mean 0 and the 2-norm length, or makes it zero where its norm is below limit, for rows > 0 and each = 1/rows.")
	n, rows, rs := g.arg("n"), g.arg("rows"), g.stride("rs")
	thrice := g.GP64()
	g.LEAQ(operand.Mem{Base: rs, Index: rs, Scale: 2}, thrice)
	none := g.register()
	g.clear(none)
	g.loop(n, 1, func(int) {
		for h := range g.vec() {
			top := g.arg("x")
			g.LEAQ(operand.Mem{Base: top, Index: g.i, Scale: 4, Disp: h * g.size()}, top)
			g.standardColumns(rows, ladder{g, top, rs, thrice}, h, none)
		}
	})
	g.finish()
}

// standardColumns is standardise for register h of a vec, whose first row is at
// the ladder's top. The register none holds zeros.
func (g *gen) standardColumns(rows reg.GPVirtual, x ladder, h int, none reg.VecVirtual) {
	first, middle, rest, each := g.register(), g.register(), g.register(), g.register()
	g.fetch(operand.Mem{Base: x.top}, h, first)

	sums := g.chains(none)
	g.fours(rows, x, func(m operand.Mem, u int) {
		d := g.register()
		g.fetch(m, h, d)
		g.VSUBPS(first, d, d)
		g.VADDPS(d, sums[u], sums[u])
	})
	g.VBROADCASTSS(g.address("each"), each)
	g.VMULPS(each, g.pairwise(g.VADDPS, sums), middle)
	g.VADDPS(first, middle, middle)

	left := func(m operand.Mem) reg.VecVirtual {
		d := g.register()
		g.fetch(m, h, d)
		g.VSUBPS(middle, d, d)
		return d
	}
	sums, squares := g.chains(none), g.chains(none)
	g.fours(rows, x, func(m operand.Mem, u int) {
		d := left(m)
		g.VADDPS(d, sums[u], sums[u])
		g.VFMADD231PS(d, d, squares[u])
	})
	g.VBROADCASTSS(g.address("each"), each)
	sum := g.pairwise(g.VADDPS, sums)
	g.VMULPS(each, sum, rest)
	size := g.squares(rows, x, h, squares, none, left)
	for i, half := range []func(reg.VecVirtual) reg.VecVirtual{g.lower, g.upper} {
		g.VFNMADD231PD(half(sum), half(rest), size[i])
		// A NaN stays.
		g.VMAXPD(size[i], none, size[i])
		g.VSQRTPD(size[i], size[i])
	}

	factor := g.convertToFloat32(g.quotient(g.lower(g.hold(g.param("length")).held[0]), size))
	g.VMULPS(factor, rest, rest)
	g.fours(rows, x, func(m operand.Mem, u int) {
		d := left(m)
		g.VFMSUB213PS(rest, factor, d)
		g.put(d, h, m)
	})
}

// squares is the sum of the squares of columns, from four sums where float32
// holds these, else from what left gives of each row.
func (g *gen) squares(rows reg.GPVirtual, x ladder, h int, sums []reg.VecVirtual, none reg.VecVirtual, left func(operand.Mem) reg.VecVirtual) doubles {
	var quarters []doubles
	for _, s := range sums {
		quarters = append(quarters, doubles{g.lower(s), g.upper(s)})
	}
	for i := range 2 {
		g.VADDPD(quarters[1][i], quarters[0][i], quarters[0][i])
		g.VADDPD(quarters[3][i], quarters[2][i], quarters[2][i])
		g.VADDPD(quarters[2][i], quarters[0][i], quarters[0][i])
	}
	size := quarters[0]

	// A column is sound if its sum lies within the bounds, as a NaN does not.
	const notAtLeast, notAtMost = 0x19, 0x16 // quiet
	sound := g.label("sound")
	low, high := g.lower(g.get(g.constant(least))[0]), g.lower(g.get(g.constant(most))[0])
	if g.avx512 {
		var odd [2]reg.OpmaskVirtual
		any := g.GP32()
		g.XORL(any, any)
		for i, s := range size {
			odd[i] = g.K()
			above, bits := g.K(), g.GP32()
			g.VCMPPD(operand.Imm(notAtLeast), low, s, odd[i])
			g.VCMPPD(operand.Imm(notAtMost), high, s, above)
			g.KORW(above, odd[i], odd[i])
			g.KMOVW(odd[i], bits)
			if i == 1 {
				g.SHLL(operand.Imm(8), bits)
			}
			g.ORL(bits, any)
		}
		if g.tail {
			exist := g.GP32()
			g.KMOVW(g.kmask, exist)
			g.ANDL(exist, any)
		}
		g.TESTL(any, any)
		g.JZ(operand.LabelRef(sound))
		exact := g.exactSquares(rows, x, none, left)
		for i := range size {
			g.VMOVAPD(exact[i], odd[i], size[i])
		}
	} else {
		var odd [2]reg.VecVirtual
		any := g.GP32()
		g.XORL(any, any)
		for i, s := range size {
			odd[i] = g.register()
			above, bits := g.register(), g.GP32()
			g.VCMPPD(operand.Imm(notAtLeast), low, s, odd[i])
			g.VCMPPD(operand.Imm(notAtMost), high, s, above)
			g.VORPD(above, odd[i], odd[i])
			g.VMOVMSKPD(odd[i], bits)
			if i == 1 {
				g.SHLL(operand.Imm(uint64(g.size()/8)), bits)
			}
			g.ORL(bits, any)
		}
		if g.tail {
			exist := g.GP32()
			g.VMOVMSKPS(g.ymask[h], exist)
			g.ANDL(exist, any)
		}
		g.TESTL(any, any)
		g.JZ(operand.LabelRef(sound))
		exact := g.exactSquares(rows, x, none, left)
		for i := range size {
			g.VBLENDVPD(odd[i], exact[i], size[i], size[i])
		}
	}
	g.Label(sound)
	return size
}

// exactSquares emits the sum over rows of the squares of left's results, in float64.
func (g *gen) exactSquares(rows reg.GPVirtual, x ladder, none reg.VecVirtual, left func(operand.Mem) reg.VecVirtual) doubles {
	sum := doubles{g.register(), g.register()}
	for _, s := range sum {
		g.VMOVAPD(none, s)
	}
	g.forEachRow(rows, []reg.GPVirtual{x.top}, []reg.GPVirtual{x.stride}, func(row []reg.GPVirtual) {
		d := left(operand.Mem{Base: row[0]})
		for i, p := range []reg.VecVirtual{g.lower(d), g.upper(d)} {
			g.VFMADD231PD(p, p, sum[i])
		}
	})
	return sum
}

// fours emits body for each of count > 0 rows, which lie from the ladder's top
// on, four at a time and then one by one, with u the chain that the row belongs
// to.
func (g *gen) fours(count reg.Register, x ladder, body func(m operand.Mem, u int)) {
	x.top = g.pointer(x.top)
	left := g.pointer(count)
	four, rest, one, done := g.label("four"), g.label("rest"), g.label("one"), g.label("done")
	g.SUBQ(operand.Imm(unroll), left)
	g.JLT(operand.LabelRef(rest))
	g.Label(four)
	for u := range unroll {
		body(x.address(u), u)
	}
	x.move(unroll)
	g.SUBQ(operand.Imm(unroll), left)
	g.JGE(operand.LabelRef(four))
	g.Label(rest)
	g.ADDQ(operand.Imm(unroll), left)
	g.JZ(operand.LabelRef(done))
	g.Label(one)
	body(x.address(0), 0)
	x.move(1)
	g.DECQ(left)
	g.JNZ(operand.LabelRef(one))
	g.Label(done)
}

// chains are as many sums as fours has rows in flight, from none, which is zero.
func (g *gen) chains(none reg.VecVirtual) []reg.VecVirtual {
	var sums []reg.VecVirtual
	for range unroll {
		r := g.register()
		g.VMOVAPS(none, r)
		sums = append(sums, r)
	}
	return sums
}

// pairwise combines four registers with op, into the first.
func (g *gen) pairwise(op func(...operand.Op), r []reg.VecVirtual) reg.VecVirtual {
	op(r[1], r[0], r[0])
	op(r[3], r[2], r[2])
	op(r[2], r[0], r[0])
	return r[0]
}
