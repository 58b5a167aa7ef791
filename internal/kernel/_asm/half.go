package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// halves emits what reads numbers of 16 bits, the upper halves of float32.
func halves(g *gen) {
	for _, cols := range []int{64, 32, 16} {
		g.mix(cols, false, true)
	}
	g.widen()
}

// widenHalf sets r to the numbers at m.
func (g *gen) widenHalf(m operand.Mem, r reg.VecVirtual) {
	g.VPMOVZXWD(m, r)
	g.VPSLLD(operand.Imm(16), r, r)
}

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
