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
// registers: 32 of 16 lanes under AVX-512, 16 of 8 lanes under AVX2, 32 of 4
// under NEON.
func tiles(g *gen) {
	if g.avx512 {
		for _, rows := range []int{12, 8, 4, 2, 1} {
			g.tile(rows, 32, false)
		}
		g.tile(12, 32, true)
		for _, rows := range []int{12, 8, 4, 2, 1} {
			g.tile(rows, 16, false)
		}
		for _, rows := range []int{6, 4, 2, 1} {
			g.tile(rows, 64, false)
		}
	} else {
		for _, rows := range []int{6, 4, 2, 1} {
			g.tile(rows, 16, false)
		}
		g.tile(1, 64, false)
		if !g.neon {
			g.tile(6, 16, true)
		}
	}
	g.peak()
}

// rowsAhead is how many bytes before it is their turn rows of a panel are asked for.
const rowsAhead = 2048

// panelAhead returns a pointer to what a tile of a panel asks for: rows of the panel, or
// in the last tile below one another those of the panel ahead, if there is one.
func (g *gen) panelAhead() reg.GPVirtual {
	ahead, done := g.arg("b"), g.label("ahead")
	g.ADDQ(operand.U32(rowsAhead), ahead)
	g.CMPQ(g.address("count"), operand.Imm(1))
	g.JNE(operand.LabelRef(done))
	g.CMPQ(g.address("ahead"), operand.Imm(0))
	g.JE(operand.LabelRef(done))
	g.MOVQ(g.address("ahead"), ahead)
	g.Label(done)
	return ahead
}

// tile emits the product of count tiles below one another:
// C [count·rows, cols] = A·B, or C += A·B. One that asks has the machine fetch a
// cache line with each of the k steps: between multiply-adds there is room for that. With
// AVX-512 it is a line of other memory, into the second-level cache. With AVX2 it is a line of
// B, which few rows would wait for otherwise. Such a tile reads A along its rows, and
// adds bias to the rows of C.
func (g *gen) tile(rows, cols int, asks bool) {
	name, more, doc := "tile", "", "."
	asksPanel := asks && !g.avx512
	switch {
	case asksPanel:
		name, more = "panelTile", ", bias, ahead *float32"
		doc = " for acs = 1, adds bias, if it is there, and asks for rows of B, and for k cache lines from ahead on, if it is there."
	case asks:
		name, more = "askingTile", ", bias, ahead *float32"
		doc = " for acs = 1, adds bias, if it is there, and asks for count·k cache lines of memory from ahead on."
	}
	g.routine(fmt.Sprintf("%s%dx%d", name, rows, cols),
		"count, k int, a *float32, ars, acs int, b *float32, brs int, c *float32, crs int, acc bool"+more+")",
		fmt.Sprintf("computes count tiles of %d rows and %d columns%s", rows, cols, doc))
	sums := make([][]reg.VecVirtual, rows)
	for i := range sums {
		sums[i] = make([]reg.VecVirtual, cols*4/g.size())
		for j := range sums[i] {
			sums[i][j] = g.register()
		}
	}
	next := g.label("tile")
	g.Label(next)

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
	switch {
	case asksPanel:
		g.multiplyRows(sums, g.panelAhead(), g.PREFETCHT0)
	case asks:
		ahead := g.arg("ahead")
		g.multiplyRows(sums, ahead, g.PREFETCHT1)
		g.MOVQ(ahead, g.address("ahead"))
	default:
		g.product(sums)
	}
	c, crs = g.arg("c"), g.stride("crs")
	g.write(sums, c, crs, asks)

	g.MOVQ(c, g.address("c"))
	top, ars := g.arg("a"), g.stride("ars")
	for range rows {
		g.ADDQ(ars, top)
	}
	g.MOVQ(top, g.address("a"))
	g.DECQ(g.address("count"))
	g.JNZ(operand.LabelRef(next))
	g.finish()
}

// product adds to the sums of a tile, for each of k columns of A and rows of
// B, their products. What is not a multiply-add or a load takes from what the
// core can start in a cycle, so where a row or a column of A lies in one piece
// its elements are reached by displacement, and pointers move once in unroll
// steps.
func (g *gen) product(sums [][]reg.VecVirtual) {
	along, across, done := g.label("along"), g.label("across"), g.label("done")
	g.CMPQ(g.address("k"), operand.Imm(0))
	g.JE(operand.LabelRef(done))
	g.CMPQ(g.address("acs"), operand.Imm(1))
	g.JE(operand.LabelRef(along))
	g.CMPQ(g.address("ars"), operand.Imm(1))
	g.JE(operand.LabelRef(across))

	// A without order: one step at a time.
	a := g.rows(g.arg("a"), g.stride("ars"), len(sums))
	acs, b, brs, k := g.stride("acs"), g.arg("b"), g.stride("brs"), g.arg("k")
	again := g.label("one")
	g.Label(again)
	g.step(sums, a.address, operand.Mem{Base: b})
	g.ADDQ(brs, b)
	a.move(acs)
	g.DECQ(k)
	g.JNZ(operand.LabelRef(again))
	g.JMP(operand.LabelRef(done))

	g.Label(along)
	g.multiplyRows(sums, nil, nil)
	g.JMP(operand.LabelRef(done))

	g.Label(across)
	columns := g.ladder("a", "acs")
	g.steps(sums, func(u, i int) operand.Mem { return columns.address(u).Offset(4 * i) }, columns.move)
	g.Label(done)
}

// multiplyRows is product where the elements of a row of A lie one behind the other. With
// ahead each step prefetches a cache line of memory, which ahead moves on by.
func (g *gen) multiplyRows(sums [][]reg.VecVirtual, ahead reg.GPVirtual, prefetch func(operand.Op)) {
	a := g.rows(g.arg("a"), g.stride("ars"), len(sums))
	g.steps(sums, func(u, i int) operand.Mem {
		if i == 0 && ahead != nil {
			prefetch(operand.Mem{Base: ahead, Disp: 64 * u})
		}
		return a.address(i).Offset(4 * u)
	}, func(n int) {
		for _, p := range a.third {
			g.ADDQ(operand.Imm(uint64(4*n)), p)
		}
		if ahead != nil {
			g.ADDQ(operand.U32(64*n), ahead)
		}
	})
}

// steps emits the loop over k. Element at(u, i) of A belongs to row i, u steps
// on; move moves A by n steps.
func (g *gen) steps(sums [][]reg.VecVirtual, at func(u, i int) operand.Mem, move func(n int)) {
	b, k := g.ladder("b", "brs"), g.arg("k")
	four, rest, one, done := g.label("four"), g.label("rest"), g.label("one"), g.label("done")
	g.SUBQ(operand.Imm(unroll), k)
	g.JLT(operand.LabelRef(rest))
	g.Label(four)
	for u := range unroll {
		g.step(sums, func(i int) operand.Mem { return at(u, i) }, b.address(u))
	}
	b.move(unroll)
	move(unroll)
	g.SUBQ(operand.Imm(unroll), k)
	g.JGE(operand.LabelRef(four))
	g.Label(rest)
	g.ADDQ(operand.Imm(unroll), k)
	g.JZ(operand.LabelRef(done))
	g.Label(one)
	g.step(sums, func(i int) operand.Mem { return at(0, i) }, b.address(0))
	b.move(1)
	move(1)
	g.DECQ(k)
	g.JNZ(operand.LabelRef(one))
	g.Label(done)
}

// step adds the products of one column of A, element i at(i), and the row b
// of B.
func (g *gen) step(sums [][]reg.VecVirtual, at func(i int) operand.Mem, b operand.Mem) {
	width := len(sums[0])
	row := make([]reg.VecVirtual, width)
	if len(sums) > 1 {
		for j := range row {
			row[j] = g.register()
			g.VMOVUPS(b.Offset(j*g.size()), row[j])
		}
	}
	for i := range sums {
		if g.avx512 && width == 1 && len(sums) > 1 {
			// A broadcast that is used once is best left to the multiply-add.
			g.VFMADD231PS_BCST(at(i), row[0], sums[i][0])
			continue
		}
		x := g.register()
		if g.neon {
			// The multiply-add takes a lane for all: nothing is broadcast.
			g.VMOVSS(at(i), x)
			for j, s := range sums[i] {
				if len(sums) == 1 {
					row[j] = g.register()
					g.VMOVUPS(b.Offset(j*g.size()), row[j])
				}
				g.byLane(row[j], x, s)
			}
			continue
		}
		g.VBROADCASTSS(at(i), x)
		for j := range row {
			if len(sums) == 1 {
				// What is used once needs no register, and AVX2 has none to spare.
				g.VFMADD231PS(b.Offset(j*g.size()), x, sums[i][j])
			} else {
				g.VFMADD231PS(row[j], x, sums[i][j])
			}
		}
	}
}

// write adds the sums to C, or sets it to them, as acc says, then bias where there may
// be one, and moves c below the tile.
func (g *gen) write(sums [][]reg.VecVirtual, c, crs reg.GPVirtual, biased bool) {
	if biased {
		none, end, bias := g.label("unbiased"), g.label("end"), g.arg("bias")
		g.TESTQ(bias, bias)
		g.JZ(operand.LabelRef(none))
		row := make([]reg.VecVirtual, len(sums[0]))
		for j := range row {
			row[j] = g.register()
			g.VMOVUPS(operand.Mem{Base: bias, Disp: j * g.size()}, row[j])
		}
		g.writeRows(sums, c, crs, row)
		g.JMP(operand.LabelRef(end))
		g.Label(none)
		defer g.Label(end)
	}
	g.writeRows(sums, c, crs, nil)
}

// writeRows is write with a bias, or without one where it is nil.
func (g *gen) writeRows(sums [][]reg.VecVirtual, c, crs reg.GPVirtual, bias []reg.VecVirtual) {
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
				if bias != nil {
					g.VADDPS(bias[j], r, r)
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
// latency times throughput of any core, and no more than the registers.
func (g *gen) peakChains() int {
	if g.neon {
		return 24
	}
	return 12
}

// peak emits a loop of multiply-adds that depend on nothing but themselves.
func (g *gen) peak() {
	g.routine("peak", "n int)", fmt.Sprintf("does n rounds of %d independent vector multiply-adds.", g.peakChains()))
	n := g.arg("n")
	x := g.register()
	g.clear(x)
	chains := make([]reg.VecVirtual, g.peakChains())
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
