package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tiles emits the tiles of C that package kernel cuts its products into, and
// the loop that measures what the machine could do at best.
//
// A tile's accumulators, one row of B and a broadcast of A share the vector
// registers: 32 of 16 lanes under AVX-512, 16 of 8 lanes under AVX2.
func tiles(g *gen) {
	if g.wide {
		for _, rows := range []int{12, 8, 4, 2, 1} {
			g.tile(rows, 32)
		}
		for _, rows := range []int{12, 8, 4, 2, 1} {
			g.tile(rows, 16)
		}
		for _, rows := range []int{6, 4, 2, 1} {
			g.tile(rows, 64)
		}
	} else {
		for _, rows := range []int{6, 4, 2, 1} {
			g.tile(rows, 16)
		}
		g.tile(1, 64)
	}
	g.peak()
}

// register is one vector register, not a whole vec: a tile's columns are
// counted in registers.
func (g *gen) register() reg.VecVirtual {
	if g.wide {
		return g.ZMM()
	}
	return g.YMM()
}

// tile emits the product of count tiles below one another:
// C [count·rows, cols] = A·B, or C += A·B.
func (g *gen) tile(rows, cols int) {
	g.routine(fmt.Sprintf("tile%dx%d", rows, cols),
		"count, k int, a *float32, ars, acs int, b *float32, brs int, c *float32, crs int, acc bool)",
		fmt.Sprintf("computes count tiles of %d rows and %d columns.", rows, cols))
	sums := make([][]reg.VecVirtual, rows)
	for i := range sums {
		sums[i] = make([]reg.VecVirtual, cols*4/g.size())
		for j := range sums[i] {
			sums[i][j] = g.register()
		}
	}
	ars, acs, brs := g.stride("ars"), g.stride("acs"), g.stride("brs")
	next := g.label("tile")
	g.Label(next)
	a := g.rows(g.arg("a"), ars, rows)
	b, k := g.arg("b"), g.arg("k")

	// Rows of C may be far apart: fetch them while the sums form.
	c, crs := g.arg("c"), g.stride("crs")
	for range rows {
		for j := 0; j < cols; j += 16 {
			g.PREFETCHT0(operand.Mem{Base: c, Disp: 4 * j})
		}
		g.ADDQ(crs, c)
	}
	for _, row := range sums {
		for _, r := range row {
			g.clear(r)
		}
	}
	g.product(sums, a, acs, b, brs, k)
	c, crs = g.arg("c"), g.stride("crs")
	g.write(sums, c, crs)

	g.MOVQ(c, g.address("c"))
	top := g.arg("a")
	for range rows {
		g.ADDQ(ars, top)
	}
	g.MOVQ(top, g.address("a"))
	g.DECQ(g.address("count"))
	g.JNZ(operand.LabelRef(next))
	g.finish()
}

// product adds to the sums of a tile, for each of k columns of A and rows of
// B, their products.
func (g *gen) product(sums [][]reg.VecVirtual, a rows, acs, b, brs, k reg.GPVirtual) {
	width := len(sums[0])
	step := func() {
		if len(sums) == 1 {
			// What is used once needs no register, and AVX2 has none to spare.
			x := g.register()
			g.VBROADCASTSS(a.at(0), x)
			for j := range width {
				g.VFMADD231PS(operand.Mem{Base: b, Disp: j * g.size()}, x, sums[0][j])
			}
			g.ADDQ(brs, b)
			a.move(acs)
			return
		}
		row := make([]reg.VecVirtual, width)
		for j := range row {
			row[j] = g.register()
			g.VMOVUPS(operand.Mem{Base: b, Disp: j * g.size()}, row[j])
		}
		g.ADDQ(brs, b)
		for i := range sums {
			if g.wide && width == 1 {
				// A broadcast that is used once is best left to the multiply-add.
				g.VFMADD231PS_BCST(a.at(i), row[0], sums[i][0])
				continue
			}
			x := g.register()
			g.VBROADCASTSS(a.at(i), x)
			for j := range row {
				g.VFMADD231PS(row[j], x, sums[i][j])
			}
		}
		a.move(acs)
	}
	four, rest, one, done := g.label("four"), g.label("rest"), g.label("one"), g.label("done")
	g.SUBQ(operand.Imm(unroll), k)
	g.JLT(operand.LabelRef(rest))
	g.Label(four)
	for range unroll {
		step()
	}
	g.SUBQ(operand.Imm(unroll), k)
	g.JGE(operand.LabelRef(four))
	g.Label(rest)
	g.ADDQ(operand.Imm(unroll), k)
	g.JZ(operand.LabelRef(done))
	g.Label(one)
	step()
	g.DECQ(k)
	g.JNZ(operand.LabelRef(one))
	g.Label(done)
}

// write adds the sums to C, or sets it to them, as acc says, and moves c below
// the tile.
func (g *gen) write(sums [][]reg.VecVirtual, c, crs reg.GPVirtual) {
	acc := g.GP32()
	g.MOVBLZX(g.address("acc"), acc)
	g.TESTL(acc, acc)
	set, done := g.label("set"), g.label("written")
	g.JZ(operand.LabelRef(set))
	for _, add := range []bool{true, false} {
		for _, row := range sums {
			for j, r := range row {
				m := operand.Mem{Base: c, Disp: j * g.size()}
				if add {
					g.VADDPS(m, r, r)
				}
				g.VMOVUPS(r, m)
			}
			g.ADDQ(crs, c)
		}
		if add {
			g.JMP(operand.LabelRef(done))
			g.Label(set)
		}
	}
	g.Label(done)
}

// peakChains is the number of independent multiply-adds in flight: more than
// latency times throughput of any core, and no more than AVX2's registers.
const peakChains = 12

// peak emits a loop of multiply-adds that depend on nothing but themselves.
func (g *gen) peak() {
	g.routine("peak", "n int)", fmt.Sprintf("does n rounds of %d independent vector multiply-adds.", peakChains))
	n := g.arg("n")
	x := g.register()
	g.clear(x)
	chains := make([]reg.VecVirtual, peakChains)
	for i := range chains {
		chains[i] = g.register()
		g.clear(chains[i])
	}
	again := g.label("loop")
	g.Label(again)
	for _, r := range chains {
		g.VFMADD231PS(x, x, r)
	}
	g.DECQ(n)
	g.JNZ(operand.LabelRef(again))
	g.finish()
}
