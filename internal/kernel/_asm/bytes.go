package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// panelBytes is the number of columns of a panel of 8-bit weights. Four steps of k lie
// side by side for each column.
const panelBytes = 32

// eightBits emits the products of numbers of 8 bits, whose sums are exact: any order of
// additions gives the same bits. AVX-512 needs VNNI for them.
func eightBits(g *gen) {
	if g.avx512 {
		for _, rows := range []int{12, 8, 4, 2, 1} {
			g.byteTile(rows, panelBytes)
		}
	} else {
		for _, rows := range []int{6, 4} {
			g.byteTile(rows, panelBytes/2)
		}
		for _, rows := range []int{2, 1} {
			g.byteTile(rows, panelBytes)
		}
		g.pairBytes()
	}
	g.largest()
	g.quantise()
}

// byteTile emits the product of count tiles below one another with a panel of weights. The
// weights are larger by 128 than what they stand for, and sums holds 128 times the sum of each
// row of a, which is subtracted before the sums become numbers of 32 bits.
func (g *gen) byteTile(rows, cols int) {
	element := "int8"
	if !g.avx512 {
		element = "int16"
	}
	g.routine(fmt.Sprintf("byteTile%dx%d", rows, cols),
		"count, k int, a *"+element+", ars int, b *uint8, c *float32, crs int, scales *float32, sums *int32, weights, bias *float32)",
		fmt.Sprintf("computes count tiles of %d rows and %d columns from k > 0 groups of four steps.", rows, cols))
	accumulators := cols * 4 / g.size()
	acc := make([][]reg.VecVirtual, rows)
	for i := range acc {
		acc[i] = make([]reg.VecVirtual, accumulators)
		for j := range acc[i] {
			acc[i][j] = g.register()
		}
	}
	next := g.label("tile")
	g.Label(next)
	for _, row := range acc {
		for _, r := range row {
			g.clear(r)
		}
	}
	bytes := 1 // of an element of a
	stride := func() reg.GPVirtual {
		ars := g.arg("ars")
		if !g.avx512 {
			g.SHLQ(operand.Imm(1), ars)
		}
		return ars
	}
	if !g.avx512 {
		bytes = 2
	}
	a, b, k := g.rows(g.arg("a"), stride(), rows), g.arg("b"), g.arg("k")
	step := func(u int) {
		for at := 0; rows == 1 && at < 4*panelBytes; at += 64 { // bound by memory
			g.PREFETCHT1(operand.Mem{Base: b, Disp: memoryAhead + 4*panelBytes*u + at})
		}
		if g.avx512 {
			g.byteStep(acc, a, b, u)
		} else {
			g.wordStep(acc, a, b, u)
		}
	}
	move := func(n int) {
		g.ADDQ(operand.U32(4*panelBytes*n), b)
		for _, p := range a.third {
			g.ADDQ(operand.Imm(uint64(4*bytes*n)), p)
		}
	}
	two, rest, done := g.label("two"), g.label("rest"), g.label("done")
	g.SUBQ(operand.Imm(2), k)
	g.JLT(operand.LabelRef(rest))
	g.Label(two)
	step(0)
	step(1)
	move(2)
	g.SUBQ(operand.Imm(2), k)
	g.JGE(operand.LabelRef(two))
	g.Label(rest)
	g.ADDQ(operand.Imm(2), k)
	g.JZ(operand.LabelRef(done))
	step(0)
	g.Label(done)
	g.finishBytes(acc)

	top, ars := g.arg("a"), stride()
	for range rows {
		g.ADDQ(ars, top)
	}
	g.MOVQ(top, g.address("a"))
	g.DECQ(g.address("count"))
	g.JNZ(operand.LabelRef(next))
	g.finish()
}

// byteStep adds the products of four steps, u groups on, four bytes to a lane.
func (g *gen) byteStep(acc [][]reg.VecVirtual, a rows, b reg.GPVirtual, u int) {
	weights := make([]reg.VecVirtual, len(acc[0]))
	for j := range weights {
		weights[j] = g.register()
		g.VMOVDQU32(operand.Mem{Base: b, Disp: 4*panelBytes*u + 64*j}, weights[j])
	}
	for i, row := range acc {
		x := g.register()
		g.VPBROADCASTD(a.address(i).Offset(4*u), x)
		for j, r := range row {
			g.VPDPBUSD(x, weights[j], r)
		}
	}
}

// wordStep is byteStep of AVX2. Products of bytes could saturate, so the weights of steps 0 and 2 and
// then of steps 1 and 3 become words, as pairBytes makes those of a. A lane has both sums of a column.
func (g *gen) wordStep(acc [][]reg.VecVirtual, a rows, b reg.GPVirtual, u int) {
	for odd := range 2 {
		weights := make([]reg.VecVirtual, len(acc[0]))
		low := g.YMM()
		if odd == 0 {
			g.VPBROADCASTD(g.word(0x00ff00ff), low)
		}
		for j := range weights {
			weights[j] = g.YMM()
			m := operand.Mem{Base: b, Disp: 4*panelBytes*u + 32*j}
			if odd == 0 {
				g.VPAND(m, low, weights[j])
			} else {
				g.VMOVDQU(m, weights[j])
				g.VPSRLW(operand.Imm(8), weights[j], weights[j])
			}
		}
		for i, row := range acc {
			x := g.YMM()
			g.VPBROADCASTD(a.address(i).Offset(8*u+4*odd), x)
			for j, r := range row {
				product := g.YMM()
				g.VPMADDWD(weights[j], x, product)
				g.VPADDD(product, r, r)
			}
		}
	}
}

// pairBytes emits the widening of a row of A for wordStep.
func (g *gen) pairBytes() {
	g.routine("pairBytes", "n int, dst *int16, x *int8)",
		"sets dst to the numbers x, of each four steps 0, 2, 1 and 3, for n > 0 a multiple of 16.")
	n, dst, x := g.arg("n"), g.arg("dst"), g.arg("x")
	again := g.label("loop")
	g.Label(again)
	even, odd, pairs := g.XMM(), g.XMM(), g.XMM()
	g.VMOVDQU(operand.Mem{Base: x}, odd)
	g.VPSLLW(operand.Imm(8), odd, even)
	g.VPSRAW(operand.Imm(8), even, even)
	g.VPSRAW(operand.Imm(8), odd, odd)
	g.VPUNPCKLDQ(odd, even, pairs)
	g.VMOVDQU(pairs, operand.Mem{Base: dst})
	g.VPUNPCKHDQ(odd, even, pairs)
	g.VMOVDQU(pairs, operand.Mem{Base: dst, Disp: 16})
	g.ADDQ(operand.Imm(lanes), x)
	g.ADDQ(operand.Imm(2*lanes), dst)
	g.SUBQ(operand.Imm(lanes), n)
	g.JNZ(operand.LabelRef(again))
	g.finish()
}

// finishBytes sets C to the sums as float32, times the scales of rows and of columns, plus
// bias, each operation rounded, and moves c, scales and sums below the tile.
func (g *gen) finishBytes(acc [][]reg.VecVirtual) {
	c, crs := g.arg("c"), g.stride("crs")
	scales, sums, weights, bias := g.arg("scales"), g.arg("sums"), g.arg("weights"), g.arg("bias")
	for i, row := range acc {
		sum, scale := g.register(), g.register()
		g.VPBROADCASTD(operand.Mem{Base: sums, Disp: 4 * i}, sum)
		g.VBROADCASTSS(operand.Mem{Base: scales, Disp: 4 * i}, scale)
		for j, r := range row {
			g.VPSUBD(sum, r, r)
			g.VCVTDQ2PS(r, r)
			g.VMULPS(scale, r, r)
			g.VMULPS(operand.Mem{Base: weights, Disp: j * g.size()}, r, r)
			g.VADDPS(operand.Mem{Base: bias, Disp: j * g.size()}, r, r)
			g.VMOVUPS(r, operand.Mem{Base: c, Disp: j * g.size()})
		}
		g.ADDQ(crs, c)
	}
	g.MOVQ(c, g.address("c"))
	for _, name := range []string{"scales", "sums"} {
		g.ADDQ(operand.Imm(uint64(4*len(acc))), g.address(name))
	}
}

// largest compares magnitudes as integers, so that a NaN is larger than every number.
func (g *gen) largest() {
	g.routine("largest", "n int, x *float32) uint32", "returns the bits of the largest magnitude of x.")
	n, x := g.arg("n"), g.arg("x")
	magnitude := g.hold(g.num(g.word(0x7fffffff)))
	most := g.zeros(unroll)
	g.loop(n, unroll, func(vecs int) {
		for u := range vecs {
			v := g.load(x, u)
			for h, r := range v {
				if g.avx512 {
					g.VPANDD(g.get(magnitude)[h], r, r)
				} else {
					g.VPAND(g.get(magnitude)[h], r, r)
				}
				g.VPMAXUD(r, most[u][h], most[u][h])
			}
		}
	})
	for u := 1; u < unroll; u++ {
		for h := range most[0] {
			g.VPMAXUD(most[u][h], most[0][h], most[0][h])
		}
	}
	g.word32(g.fold(g.VPMAXUD, most[0]))
}

// quantise rounds to integers and keeps their low bytes.
func (g *gen) quantise() {
	g.routine("quantise", "n int, dst *int8, x *float32, factor float32) int32",
		"sets dst to factor·x, rounded to the nearest integers of 8 bits, and 0 up to a multiple of 16, and returns their sum.")
	n, dst, x := g.arg("n"), g.arg("dst"), g.arg("x")
	factor := g.hold(g.param("factor"))
	sum := g.zero()
	g.loop(n, unroll, func(vecs int) {
		for u := range vecs {
			v := g.integer(g.mul(g.load(x, u), g.get(factor)))
			m := operand.Mem{Base: dst, Index: g.i, Scale: 1, Disp: lanes * u}
			for h, r := range v {
				g.VPADDD(r, sum[h], sum[h])
			}
			if g.avx512 {
				g.VPMOVSDB(v[0], m)
				continue
			}
			high := g.XMM()
			g.VPACKSSDW(v[1], v[0], v[0])
			g.VPERMQ(operand.Imm(0xd8), v[0], v[0])
			g.VEXTRACTI128(operand.Imm(1), v[0], high)
			g.VPACKSSWB(high, v[0].AsX(), high)
			g.VMOVDQU(high, m)
		}
	})
	g.word32(g.fold(g.VPADDD, sum))
}

// word32 ends a routine that returns the low lane of x, an integer.
func (g *gen) word32(x reg.Register) {
	r := g.GP32()
	g.VMOVD(x, r)
	g.VZEROUPPER()
	g.Store(r, g.ReturnIndex(0))
	g.RET()
}
