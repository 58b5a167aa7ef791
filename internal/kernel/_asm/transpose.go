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
		var r [4]reg.VecVirtual
		for i := range r {
			r[i] = g.YMM()
			g.VMOVUPS(src.address(i).Offset(16*half), r[i].AsX())
			g.VINSERTF128(operand.Imm(1), src.address(i+4).Offset(16*half), r[i], r[i])
		}
		d := g.turn(r)
		for i := range d {
			g.VMOVUPS(d[i], dst.address(4*half+i))
		}
	}
	dst.move(down)
	src.move(along)
	g.DECQ(count)
	g.JNZ(operand.LabelRef(again))
	g.finish()
}

// transposeNEON is transpose of registers of four, which take four rows.
func (g *gen) transposeNEON() {
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
	for quarter := range 4 {
		i, j := quarter/2*4, quarter%2*4
		var r, d [4]reg.VecVirtual
		for u := range r {
			r[u] = g.XMM()
			g.VMOVUPS(src.address(i+u).Offset(4*j), r[u])
		}
		d = g.turn(r)
		for u := range d {
			g.VMOVUPS(d[u], dst.address(j+u).Offset(4*i))
		}
	}
	dst.move(down)
	src.move(along)
	g.DECQ(count)
	g.JNZ(operand.LabelRef(again))
	g.finish()
}

// turn transposes four registers, in each of their quarters of four lanes.
func (g *gen) turn(r [4]reg.VecVirtual) (d [4]reg.VecVirtual) {
	var t [4]reg.VecVirtual
	for i := range d {
		t[i], d[i] = g.register(), g.register()
	}
	g.VUNPCKLPS(r[1], r[0], t[0])
	g.VUNPCKHPS(r[1], r[0], t[1])
	g.VUNPCKLPS(r[3], r[2], t[2])
	g.VUNPCKHPS(r[3], r[2], t[3])
	g.VUNPCKLPD(t[2], t[0], d[0])
	g.VUNPCKHPD(t[2], t[0], d[1])
	g.VUNPCKLPD(t[3], t[1], d[2])
	g.VUNPCKHPD(t[3], t[1], d[3])
	return d
}
