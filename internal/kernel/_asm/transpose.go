package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose emits the transpose of 8 rows by count blocks of 8 columns. Rows i
// and i+4 share a register from the load on, so that no shuffle has to cross
// the halves of one.
func (g *gen) transpose() {
	g.routine("transpose8", "count int, dst *float32, drs int, src *float32, srs int)",
		"transposes 8 rows of count·8 columns.")
	count := g.arg("count")
	drs, srs := g.stride("drs"), g.stride("srs")
	dst, src := g.rows(g.arg("dst"), drs, 8), g.rows(g.arg("src"), srs, 8)
	down, along := g.GP64(), g.GP64()
	g.MOVQ(drs, down)
	g.SHLQ(operand.Imm(3), down)
	g.MOVQ(operand.I32(32), along)

	again := g.label("block")
	g.Label(again)
	for half := range 2 {
		var r, t, d [4]reg.VecVirtual
		for i := range r {
			r[i], t[i], d[i] = g.YMM(), g.YMM(), g.YMM()
			g.VMOVUPS(src.at(i).Offset(16*half), r[i].AsX())
			g.VINSERTF128(operand.Imm(1), src.at(i+4).Offset(16*half), r[i], r[i])
		}
		g.VUNPCKLPS(r[1], r[0], t[0])
		g.VUNPCKHPS(r[1], r[0], t[1])
		g.VUNPCKLPS(r[3], r[2], t[2])
		g.VUNPCKHPS(r[3], r[2], t[3])
		g.VUNPCKLPD(t[2], t[0], d[0])
		g.VUNPCKHPD(t[2], t[0], d[1])
		g.VUNPCKLPD(t[3], t[1], d[2])
		g.VUNPCKHPD(t[3], t[1], d[3])
		for i := range d {
			g.VMOVUPS(d[i], dst.at(4*half+i))
		}
	}
	dst.move(down)
	src.move(along)
	g.DECQ(count)
	g.JNZ(operand.LabelRef(again))
	g.finish()
}
