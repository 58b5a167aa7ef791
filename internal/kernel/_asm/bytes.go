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
		g.bytePeaks(12)
		g.places()
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

// bytePeaks emits the products of rows with all panels, of which each pair of lanes leaves the larger
// number. The weights are larger by 128 than what they stand for, and sums holds -128 times the sum of
// each row of a, with which sums begin.
func (g *gen) bytePeaks(rows int) {
	g.routine(fmt.Sprintf("bytePeaks%d", rows),
		"panels, k int, a *int8, ars int, b *uint8, scales *float32, sums *int32, bias, peaks *float32, prs int)",
		fmt.Sprintf("sets %d rows of peaks to the larger products, plus bias, of columns 16 apart of panels of 32 columns and k > 0 groups of four steps.", rows))
	acc := make([][]reg.VecVirtual, rows)
	for i := range acc {
		acc[i] = []reg.VecVirtual{g.register(), g.register()}
	}
	b := g.arg("b")
	next := g.label("panel")
	g.Label(next)
	sums := g.arg("sums")
	for i, row := range acc {
		for _, r := range row {
			g.VPBROADCASTD(operand.Mem{Base: sums, Disp: 4 * i}, r)
		}
	}
	a, k := g.rows(g.arg("a"), g.arg("ars"), rows), g.arg("k")
	again := g.label("loop")
	g.Label(again)
	g.byteStep(acc, a, b, 0)
	g.ADDQ(operand.U32(4*panelBytes), b)
	for _, p := range a.third {
		g.ADDQ(operand.Imm(4), p)
	}
	g.DECQ(k)
	g.JNZ(operand.LabelRef(again))
	bias, peaks, prs, scales := g.arg("bias"), g.arg("peaks"), g.stride("prs"), g.arg("scales")
	var add [2]reg.VecVirtual
	for j := range add {
		add[j] = g.register()
		g.VMOVUPS(operand.Mem{Base: bias, Disp: 64 * j}, add[j])
	}
	g.ADDQ(operand.U32(4*panelBytes), bias)
	g.MOVQ(bias, g.address("bias"))
	to := g.GP64()
	g.MOVQ(peaks, to)
	for i, row := range acc {
		scale := g.register()
		g.VBROADCASTSS(operand.Mem{Base: scales, Disp: 4 * i}, scale)
		for j, r := range row {
			g.VCVTDQ2PS(r, r)
			g.VFMADD213PS(add[j], scale, r)
		}
		g.VMAXPS(row[0], row[1], row[0])
		g.VMOVUPS(row[0], operand.Mem{Base: to})
		g.ADDQ(prs, to)
	}
	g.ADDQ(operand.Imm(64), peaks)
	g.MOVQ(peaks, g.address("peaks"))
	g.DECQ(g.address("panels"))
	g.JNZ(operand.LabelRef(next))
	g.finish()
}

// places emits the search for numbers that are not below a bound. Registers are compressed, since some
// processors compress slowly into memory.
func (g *gen) places() {
	g.routine("places", "n int, dst *int32, x *float32, least float32) int",
		"sets dst to the places of those of n > 0 numbers x, a multiple of 16, that are at least least, and returns their number. It may write 15 numbers beyond.")
	const atLeast = 0x1d
	n, start, x := g.arg("n"), g.arg("dst"), g.arg("x")
	least := g.get(g.param("least"))[0]
	dst, at, step := g.GP64(), g.ZMM(), g.get(num{mem: g.word(lanes)})[0]
	g.MOVQ(start, dst)
	g.VMOVUPS(g.counting(), at)
	again, none := g.label("loop"), g.label("none")
	g.Label(again)
	v, k := g.ZMM(), g.K()
	g.VMOVUPS(operand.Mem{Base: x}, v)
	g.VCMPPS(operand.Imm(atLeast), least, v, k)
	g.KORTESTW(k, k)
	g.JZ(operand.LabelRef(none))
	found, count := g.ZMM(), g.GP32()
	g.VPCOMPRESSD_Z(at, k, found)
	g.VMOVUPS(found, operand.Mem{Base: dst})
	g.KMOVW(k, count)
	g.POPCNTL(count, count)
	g.LEAQ(operand.Mem{Base: dst, Index: count.As64(), Scale: 4}, dst)
	g.Label(none)
	g.VPADDD(step, at, at)
	g.ADDQ(operand.Imm(4*lanes), x)
	g.SUBQ(operand.Imm(lanes), n)
	g.JNZ(operand.LabelRef(again))
	g.SUBQ(start, dst)
	g.SHRQ(operand.Imm(2), dst)
	g.VZEROUPPER()
	g.Store(dst, g.ReturnIndex(0))
	g.RET()
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
