package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pairColumns is the number of columns whose numbers of 16 bits lie in pairs: of a row, column i beside
// column i+16, in one word of 32 bits.
const pairColumns = 2 * lanes

// halves emits what reads numbers of 16 bits, the upper halves of float32.
func halves(g *gen) {
	for _, cols := range []int{64, 32, 16} {
		g.mix(cols, false, true)
	}
	g.widen()
	g.widenPairs()
	g.pairHalves()
}

// widenHalf sets r to the numbers at m.
func (g *gen) widenHalf(m operand.Mem, r reg.VecVirtual) {
	g.VPMOVZXWD(m, r)
	g.VPSLLD(operand.Imm(16), r, r)
}

// upperMask returns a register that selects the upper halves of words.
func (g *gen) upperMask() reg.VecVirtual {
	r := g.register()
	g.VPBROADCASTD(g.word(0xffff0000), r)
	return r
}

// widenPair sets low and high to the numbers of the pairs at m.
func (g *gen) widenPair(m operand.Mem, mask, low, high reg.VecVirtual) {
	if g.avx512 {
		g.VPANDD(m, mask, high)
		g.VPSLLD(operand.Imm(16), m, low)
		return
	}
	g.VMOVDQU(m, low)
	g.VPAND(mask, low, high)
	g.VPSLLD(operand.Imm(16), low, low)
}

// memoryAhead is how far before their use products of one row ask for weights of 16 and 8 bits, in bytes.
// Few of the instructions that widen them fit into the window of the processor.
const memoryAhead = 4096

func (g *gen) widen() {
	g.routine("widen", "n int, dst *float32, x *uint16)", "sets dst to the numbers whose upper 16 bits are x, for n > 0 a multiple of 16.")
	n, dst, x := g.arg("n"), g.arg("dst"), g.arg("x")
	again := g.label("loop")
	g.Label(again)
	for at := 0; at < 4*lanes; at += g.size() {
		r := g.register()
		g.widenHalf(operand.Mem{Base: x, Disp: at / 2}, r)
		g.VMOVUPS(r, operand.Mem{Base: dst, Disp: at})
	}
	g.ADDQ(operand.Imm(2*lanes), x)
	g.ADDQ(operand.Imm(4*lanes), dst)
	g.SUBQ(operand.Imm(lanes), n)
	g.JNZ(operand.LabelRef(again))
	g.finish()
}

func (g *gen) widenPairs() {
	g.routine("widenPairs", "n int, dst *float32, x *uint16)", "is widen of numbers that lie in pairs, for n > 0 a multiple of 32.")
	n, dst, x := g.arg("n"), g.arg("dst"), g.arg("x")
	mask, again := g.upperMask(), g.label("loop")
	g.Label(again)
	for at := 0; at < 4*lanes; at += g.size() {
		low, high := g.register(), g.register()
		g.widenPair(operand.Mem{Base: x, Disp: at}, mask, low, high)
		g.VMOVUPS(low, operand.Mem{Base: dst, Disp: at})
		g.VMOVUPS(high, operand.Mem{Base: dst, Disp: 4*lanes + at})
	}
	g.ADDQ(operand.Imm(2*pairColumns), x)
	g.ADDQ(operand.U32(4*pairColumns), dst)
	g.SUBQ(operand.Imm(pairColumns), n)
	g.JNZ(operand.LabelRef(again))
	g.finish()
}

// pairHalves emits the first step of packing: pairs of two rows, which are transposed afterwards.
func (g *gen) pairHalves() {
	if g.avx512 {
		return // that of AVX2 is as fast as memory
	}
	g.routine("pairHalves", "n int, dst *float32, x, y *uint16) uint32",
		"sets the words of dst to y beside x below, for n > 0 a multiple of 8, and returns bits of which none is set if all numbers are finite.")
	n, dst, x, y := g.arg("n"), g.arg("dst"), g.arg("x"), g.arg("y")
	exponent, found := g.XMM(), g.XMM()
	g.VPBROADCASTD(g.word(0x7f807f80), exponent)
	g.VPXOR(found, found, found)
	again := g.label("loop")
	g.Label(again)
	a, b, low, high := g.XMM(), g.XMM(), g.XMM(), g.XMM()
	g.VMOVDQU(operand.Mem{Base: x}, a)
	g.VMOVDQU(operand.Mem{Base: y}, b)
	g.VPUNPCKLWD(b, a, low)
	g.VPUNPCKHWD(b, a, high)
	g.VMOVDQU(low, operand.Mem{Base: dst})
	g.VMOVDQU(high, operand.Mem{Base: dst, Disp: 16})
	for _, v := range []reg.VecVirtual{a, b} {
		g.VPAND(exponent, v, v)
		g.VPCMPEQW(exponent, v, v)
		g.VPOR(v, found, found)
	}
	g.ADDQ(operand.Imm(16), x)
	g.ADDQ(operand.Imm(16), y)
	g.ADDQ(operand.Imm(32), dst)
	g.SUBQ(operand.Imm(8), n)
	g.JNZ(operand.LabelRef(again))
	r := g.GP32()
	g.VPMOVMSKB(found, r)
	g.VZEROUPPER()
	g.Store(r, g.ReturnIndex(0))
	g.RET()
}
