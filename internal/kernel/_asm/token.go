package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// token emits the routines for single tokens, which are memory-bound.
func token(g *gen) {
	for _, cols := range []int{64, 32, 16} {
		g.mix(cols, false, false)
		g.mix(cols, true, false)
	}
	for _, cols := range []int{32, 16} {
		g.renew(cols, false)
		g.renew(cols, true)
	}
	g.featureRow()
}

// mix emits the product of a row and a panel of a matrix. Sums start from zero
// every step rows, which costs no waiting: the next begin while the last are
// added. With a total, a single column more has its sums beside those. Numbers of half
// the size are the upper 16 bits of those that they stand for, and lie in pairs where
// there are columns for them.
func (g *gen) mix(cols int, total, half bool) {
	name, element, more, result, doc := "mix", "*float32", ")", "", "."
	if half {
		name, element = "mixHalf", "*uint16"
	}
	if total {
		name, more, result = "mixTotal", ", z *float32, total float32)", " float32"
		doc = ", and returns total with a·z added likewise."
	}
	g.routine(fmt.Sprintf("%s%d", name, cols), "k, step int, c, a *float32, b "+element+", brs int"+more+result,
		fmt.Sprintf("adds to c the product of a and the %d columns of b, summed from zero over every step of k > 0 rows%s", cols, doc))
	k, c, a, b, brs := g.arg("k"), g.arg("c"), g.arg("a"), g.arg("b"), g.arg("brs")
	if half {
		g.SHLQ(operand.Imm(1), brs)
	} else {
		g.SHLQ(operand.Imm(2), brs)
	}
	sums := make([]reg.VecVirtual, cols*4/g.size())
	for j := range sums {
		sums[j] = g.register()
	}
	var z reg.GPVirtual
	all, part := g.XMM(), g.XMM()
	if total {
		z = g.arg("z")
		g.VMOVSS(g.address("total"), all)
	}
	var mask reg.VecVirtual
	pairs := half && cols%pairColumns == 0
	if pairs {
		mask = g.upperMask()
	}
	row := func(i int) {
		x := g.register()
		g.VBROADCASTSS(operand.Mem{Base: a, Disp: 4 * i}, x)
		for j, s := range sums {
			if pairs {
				// Of the registers of 32 columns the second half is in the upper halves of the first.
				count := 4 * lanes / g.size()
				if j/count%2 > 0 {
					continue
				}
				at := j/(2*count)*2*pairColumns + j%count*g.size()
				low, high := g.register(), g.register()
				if at%64 == 0 {
					g.PREFETCHT1(operand.Mem{Base: b, Disp: memoryAhead + at})
				}
				g.widenPair(operand.Mem{Base: b, Disp: at}, mask, low, high)
				g.VFMADD231PS(low, x, s)
				g.VFMADD231PS(high, x, sums[j+count])
			} else if half {
				wide := g.register()
				g.widenHalf(operand.Mem{Base: b, Disp: j * g.size() / 2}, wide)
				g.VFMADD231PS(wide, x, s)
			} else {
				g.VFMADD231PS(operand.Mem{Base: b, Disp: j * g.size()}, x, s)
			}
		}
		if total {
			g.VFMADD231SS(operand.Mem{Base: z, Disp: 4 * i}, x.AsX(), part)
		}
		g.ADDQ(brs, b)
	}
	move := func(n int) {
		g.ADDQ(operand.Imm(uint64(4*n)), a)
		if total {
			g.ADDQ(operand.Imm(uint64(4*n)), z)
		}
	}
	block, four, rest, one, done := g.label("block"), g.label("four"), g.label("rest"), g.label("one"), g.label("done")
	g.Label(block)
	left := g.arg("step")
	g.CMPQ(k, left)
	g.CMOVQLT(k, left)
	g.SUBQ(left, k)
	for _, s := range sums {
		g.clear(s)
	}
	if total {
		g.VXORPS(part, part, part)
	}
	g.SUBQ(operand.Imm(unroll), left)
	g.JLT(operand.LabelRef(rest))
	g.Label(four)
	for i := range unroll {
		row(i)
	}
	move(unroll)
	g.SUBQ(operand.Imm(unroll), left)
	g.JGE(operand.LabelRef(four))
	g.Label(rest)
	g.ADDQ(operand.Imm(unroll), left)
	g.JZ(operand.LabelRef(done))
	g.Label(one)
	row(0)
	move(1)
	g.DECQ(left)
	g.JNZ(operand.LabelRef(one))
	g.Label(done)
	for j, s := range sums {
		m := operand.Mem{Base: c, Disp: j * g.size()}
		g.VADDPS(m, s, s)
		g.VMOVUPS(s, m)
	}
	if total {
		g.VADDSS(part, all, all)
	}
	g.TESTQ(k, k)
	g.JNZ(operand.LabelRef(block))
	if total {
		g.results(all)
		return
	}
	g.finish()
}

// renewAhead is how many bytes before it is their turn rows are asked for: two heads of
// width 32, where heads lie one behind the other. What lies beyond the last is not read.
const renewAhead = 8192

// renew is mix without steps, for panels that change behind it, of one token after the
// other: each row is read once. The first panel has the scores, the totals and the
// columns of these.
func (g *gen) renew(cols int, total bool) {
	name, more, doc := "renew", ", w *float32)", "."
	moved := []struct{ name, by string }{{"c", "crs"}, {"a", "ars"}, {"x", "ars"}, {"y", "yrs"}, {"b", "next"}}
	if total {
		name, more = "renewTotal", ", w, q, z *float32, c0, c1 float32, totals *float32)"
		doc = ", for w = c0 + c1·(q·x), which it sets, and adds x to z, of which w + a·z was the total."
		moved = append(moved, struct{ name, by string }{"q", "ars"}, struct{ name, by string }{"z", "next"})
	}
	g.routine(fmt.Sprintf("%s%d", name, cols), "count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int"+more,
		fmt.Sprintf("sets c to w·y plus the product of a and the %d columns of b, k > 0 rows, and adds x[p]·y to them, for each of count > 0 tokens%s", cols, doc))
	token := g.label("token")
	g.Label(token)
	k, a, x, b, brs := g.arg("k"), g.arg("a"), g.arg("x"), g.arg("b"), g.stride("brs")
	y := g.arg("y")
	values := make([]reg.VecVirtual, cols*4/g.size())
	for j := range values {
		values[j] = g.register()
		g.VMOVUPS(operand.Mem{Base: y, Disp: j * g.size()}, values[j])
	}
	sums := make([]reg.VecVirtual, len(values))
	for j := range sums {
		sums[j] = g.register()
		g.clear(sums[j])
	}
	var q, z reg.GPVirtual
	score, part := g.register(), g.XMM()
	if total {
		q, z = g.arg("q"), g.arg("z")
		g.clear(score)
		g.VXORPS(part, part, part)
	}
	weigh, key, old, own := g.register(), g.register(), g.register(), g.register()
	row := func(i int) {
		g.VBROADCASTSS(operand.Mem{Base: a, Disp: 4 * i}, weigh)
		g.VBROADCASTSS(operand.Mem{Base: x, Disp: 4 * i}, key)
		for j, s := range sums {
			m := operand.Mem{Base: b, Disp: j * g.size()}
			if at := j * g.size(); !g.neon && at%64 == 0 {
				g.PREFETCHT0(operand.Mem{Base: b, Disp: at + renewAhead})
			}
			g.VMOVUPS(m, old)
			g.VFMADD231PS(old, weigh, s)
			g.clear(own) // a product is a sum from zero, as Block has it
			g.VFMADD231PS(values[j], key, own)
			g.VADDPS(old, own, own)
			g.VMOVUPS(own, m)
		}
		if total {
			g.VFMADD231SS(operand.Mem{Base: z, Disp: 4 * i}, weigh.AsX(), part)
			g.VFMADD231SS(operand.Mem{Base: q, Disp: 4 * i}, key.AsX(), score.AsX())
		}
		g.ADDQ(brs, b)
	}
	move := func(n int) {
		for _, p := range []reg.GPVirtual{a, x, q, z} {
			if p != nil {
				g.ADDQ(operand.Imm(uint64(4*n)), p)
			}
		}
	}
	four, rest, one, done := g.label("four"), g.label("rest"), g.label("one"), g.label("done")
	g.SUBQ(operand.Imm(unroll), k)
	g.JLT(operand.LabelRef(rest))
	g.Label(four)
	for i := range unroll {
		row(i)
	}
	if total { // unroll = 4 of them
		g.VMOVUPS(operand.Mem{Base: z}, own.AsX())
		g.VADDPS(operand.Mem{Base: x}, own.AsX(), own.AsX())
		g.VMOVUPS(own.AsX(), operand.Mem{Base: z})
	}
	move(unroll)
	g.SUBQ(operand.Imm(unroll), k)
	g.JGE(operand.LabelRef(four))
	g.Label(rest)
	g.ADDQ(operand.Imm(unroll), k)
	g.JZ(operand.LabelRef(done))
	g.Label(one)
	row(0)
	if total {
		g.VADDSS(operand.Mem{Base: z}, key.AsX(), own.AsX())
		g.VMOVSS(own.AsX(), operand.Mem{Base: z})
	}
	move(1)
	g.DECQ(k)
	g.JNZ(operand.LabelRef(one))
	g.Label(done)
	w, weights := key, g.arg("w")
	if total {
		g.VBROADCASTSS(score.AsX(), score)
		g.VBROADCASTSS(g.address("c1"), w)
		g.VBROADCASTSS(g.address("c0"), weigh)
		g.VFMADD213PS(weigh, score, w)
		g.VMOVSS(w.AsX(), operand.Mem{Base: weights})
	} else {
		g.VBROADCASTSS(operand.Mem{Base: weights}, w)
	}
	g.ADDQ(operand.Imm(4), g.address("w"))
	g.clear(old)
	c := g.arg("c")
	for j, s := range sums {
		g.clear(own)
		g.VFMADD231PS(values[j], w, own)
		g.VADDPS(old, own, own)
		g.VADDPS(s, own, own)
		g.VMOVUPS(own, operand.Mem{Base: c, Disp: j * g.size()})
	}
	if total {
		totals := g.arg("totals")
		g.VADDSS(part, w.AsX(), part)
		g.VMOVSS(part, operand.Mem{Base: totals})
		g.ADDQ(operand.Imm(4), g.address("totals"))
	}
	for _, p := range moved {
		g.ADDQ(g.stride(p.by), g.address(p.name))
	}
	g.DECQ(g.address("count"))
	g.JNZ(operand.LabelRef(token))
	g.finish()
}

// featureRow writes whole vectors: the next run overwrites the excess of the previous one.
func (g *gen) featureRow() {
	g.routine("featureRow", "rows, n int, dst, w *float32, s float32, x *float32)",
		"sets dst to the runs w∘((s·x[r])·x[r:n]) of r < rows, one after another, for rows > 0, and writes up to 15 numbers beyond.")
	rows, n, dst, w, x := g.arg("rows"), g.arg("n"), g.arg("dst"), g.arg("w"), g.arg("x")
	s := g.XMM()
	g.VMOVSS(g.address("s"), s)
	g.i = g.GP64()
	run, again := g.label("run"), g.label("loop")
	g.Label(run)
	first := g.register()
	g.VMULSS(operand.Mem{Base: x}, s, first.AsX())
	g.VBROADCASTSS(first.AsX(), first)
	p := g.every(first)
	g.XORQ(g.i, g.i)
	g.Label(again)
	g.store(g.mul(g.mul(p, g.load(x, 0)), g.load(w, 0)), dst, 0)
	g.ADDQ(operand.Imm(lanes), g.i)
	g.CMPQ(g.i, n)
	g.JLT(operand.LabelRef(again))
	for _, p := range []reg.GPVirtual{dst, w} {
		g.LEAQ(operand.Mem{Base: p, Index: n, Scale: 4}, p)
	}
	g.ADDQ(operand.Imm(4), x)
	g.DECQ(n)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef(run))
	g.finish()
}
