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
	width := cols * 4 / g.size() // registers per row
	g.routine(fmt.Sprintf("tile%dx%d", rows, cols),
		"count, k int, a *float32, ars, acs int, b *float32, brs int, c *float32, crs int, acc bool)",
		fmt.Sprintf("computes count tiles of %d rows and %d columns.", rows, cols))

	acc := make([][]reg.VecVirtual, rows)
	for i := range acc {
		acc[i] = make([]reg.VecVirtual, width)
		for j := range acc[i] {
			acc[i][j] = g.register()
		}
	}
	ars, acs, brs := g.integer("ars"), g.integer("acs"), g.integer("brs")
	for _, stride := range []reg.GPVirtual{ars, acs, brs} {
		g.SHLQ(operand.Imm(2), stride)
	}

	next := g.label("tile")
	g.Label(next)
	b := g.pointer("b")
	k := g.integer("k")
	// Rows 0, 1 and 2 of each group of three are at p, p+ars and p+2·ars.
	groups := []reg.GPVirtual{g.pointer("a")}
	for 3*len(groups) < rows {
		p := g.GP64()
		last := groups[len(groups)-1]
		g.LEAQ(operand.Mem{Base: last, Index: ars, Scale: 2}, p)
		g.ADDQ(ars, p)
		groups = append(groups, p)
	}
	element := func(i int) operand.Mem {
		m := operand.Mem{Base: groups[i/3]}
		if i%3 > 0 {
			m.Index, m.Scale = ars, uint8(i%3)
		}
		return m
	}
	c, crs := g.pointer("c"), g.integer("crs")
	g.SHLQ(operand.Imm(2), crs)
	for range rows {
		for disp := 0; disp < 4*cols; disp += 64 {
			g.PREFETCHT0(operand.Mem{Base: c, Disp: disp})
		}
		g.ADDQ(crs, c)
	}
	for _, row := range acc {
		for _, r := range row {
			g.clear(r)
		}
	}
	step := func() {
		row := make([]reg.VecVirtual, width)
		for j := range row {
			row[j] = g.register()
			g.VMOVUPS(operand.Mem{Base: b, Disp: j * g.size()}, row[j])
		}
		g.ADDQ(brs, b)
		for i := range rows {
			if g.wide && width == 1 {
				// One use of the broadcast: have it done by the multiply-add.
				g.VFMADD231PS_BCST(element(i), row[0], acc[i][0])
				continue
			}
			x := g.register()
			g.VBROADCASTSS(element(i), x)
			for j := range row {
				g.VFMADD231PS(row[j], x, acc[i][j])
			}
		}
		for _, p := range groups {
			g.ADDQ(acs, p)
		}
	}
	const unroll = 4
	four, one, done := g.label("four"), g.label("one"), g.label("done")
	g.SUBQ(operand.Imm(unroll), k)
	g.JLT(operand.LabelRef(one + "s"))
	g.Label(four)
	for range unroll {
		step()
	}
	g.SUBQ(operand.Imm(unroll), k)
	g.JGE(operand.LabelRef(four))
	g.Label(one + "s")
	g.ADDQ(operand.Imm(unroll), k)
	g.JZ(operand.LabelRef(done))
	g.Label(one)
	step()
	g.DECQ(k)
	g.JNZ(operand.LabelRef(one))
	g.Label(done)

	c, crs = g.pointer("c"), g.integer("crs")
	g.SHLQ(operand.Imm(2), crs)
	flag := g.GP32()
	g.MOVBLZX(g.address("acc"), flag)
	g.TESTL(flag, flag)
	set, stored := g.label("set"), g.label("stored")
	g.JZ(operand.LabelRef(set))
	write := func(add bool) {
		for i, row := range acc {
			if i > 0 {
				g.ADDQ(crs, c)
			}
			for j, r := range row {
				m := operand.Mem{Base: c, Disp: j * g.size()}
				if add {
					g.VADDPS(m, r, r)
				}
				g.VMOVUPS(r, m)
			}
		}
	}
	write(true)
	g.JMP(operand.LabelRef(stored))
	g.Label(set)
	write(false)
	g.Label(stored)

	g.ADDQ(crs, c)
	g.MOVQ(c, g.address("c"))
	a := g.pointer("a")
	for range rows {
		g.ADDQ(ars, a)
	}
	g.MOVQ(a, g.address("a"))
	g.DECQ(g.address("count"))
	g.JNZ(operand.LabelRef(next))
	g.finish()
}

// peakChains is the number of independent multiply-adds in flight: more than
// latency times throughput of any core, and no more than AVX2's registers.
const peakChains = 12

// peak emits a loop of multiply-adds that depend on nothing but themselves.
func (g *gen) peak() {
	g.routine("peak", "n int)", fmt.Sprintf("does n rounds of %d independent vector multiply-adds.", peakChains))
	n := g.integer("n")
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
