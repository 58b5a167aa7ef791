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
	count := g.integer("count")
	rows := func(base, stride string) (step reg.GPVirtual, at func(i int) operand.Mem, move func(reg.Register)) {
		step = g.integer(stride)
		g.SHLQ(operand.Imm(2), step)
		p := []reg.GPVirtual{g.pointer(base), g.GP64(), g.GP64()}
		for i := 1; i < len(p); i++ {
			g.LEAQ(operand.Mem{Base: p[i-1], Index: step, Scale: 2}, p[i])
			g.ADDQ(step, p[i])
		}
		at = func(i int) operand.Mem {
			m := operand.Mem{Base: p[i/3]}
			if i%3 > 0 {
				m.Index, m.Scale = step, uint8(i%3)
			}
			return m
		}
		move = func(by reg.Register) {
			for _, p := range p {
				g.ADDQ(by, p)
			}
		}
		return step, at, move
	}
	drs, dst, moveDst := rows("dst", "drs")
	_, src, moveSrc := rows("src", "srs")
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
			g.VMOVUPS(src(i).Offset(16*half), r[i].AsX())
			g.VINSERTF128(operand.Imm(1), src(i+4).Offset(16*half), r[i], r[i])
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
			g.VMOVUPS(d[i], dst(4*half+i))
		}
	}
	moveDst(down)
	moveSrc(along)
	g.DECQ(count)
	g.JNZ(operand.LabelRef(again))
	g.finish()
}
