package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// random emits the routines that draw numbers.
func random(g *gen) { g.uniform() }

// Multipliers and steps of the keys of Philox4x32 (Salmon et al. 2011, section 4).
const (
	philoxRounds = 10
	philoxM0     = 0xD2511F53
	philoxM1     = 0xCD9E8D57
	philoxW0     = 0x9E3779B9
	philoxW1     = 0xBB67AE85
)

// uniform draws the 16 bytes of one number a lane: a word of all in each of four
// registers, which are turned around at the end.
func (g *gen) uniform() {
	g.routine("uniform", "groups int, dst *float32, factor float32, lo, hi, stream, k0, k1 uint32)",
		"sets dst [groups,16,16] to factor·(2x - 255) for the bytes x of numbers from lo on.")
	groups, dst, lo := g.arg("groups"), g.arg("dst"), g.GP32()
	g.Load(g.Param("lo"), lo)
	m0, m1 := g.broadcast(g.word(philoxM0)), g.broadcast(g.word(philoxM1))
	w0, w1 := g.broadcast(g.word(philoxW0)), g.broadcast(g.word(philoxW1))

	if g.avx512 {
		bits := g.GP32()
		g.oddLanes = g.K()
		g.MOVL(operand.U32(0xaaaa), bits)
		g.KMOVW(bits, g.oddLanes)
	}

	again := g.label("group")
	g.Label(again)
	numbers := g.size() / 4 // in a register
	for range lanes / numbers {
		var c [4]reg.VecVirtual
		c[0] = g.register()
		g.VMOVD(lo, c[0].AsX())
		g.VPBROADCASTD(c[0].AsX(), c[0])
		g.VPADDD(g.counting(), c[0], c[0])
		c[1], c[2], c[3] = g.broadcast(g.address("hi")), g.broadcast(g.address("stream")), g.register()
		g.clear(c[3])
		k0, k1 := g.broadcast(g.address("k0")), g.broadcast(g.address("k1"))
		for round := range philoxRounds {
			if round > 0 {
				g.VPADDD(w0, k0, k0)
				g.VPADDD(w1, k1, k1)
			}
			h0, l0 := g.wideProduct(c[0], m0)
			h1, l1 := g.wideProduct(c[2], m1)
			g.xor(c[1], h1)
			g.xor(k0, h1)
			g.xor(c[3], h0)
			g.xor(k1, h0)
			c = [4]reg.VecVirtual{h1, l1, h0, l0}
		}
		g.writeBytes(c, dst)
		g.ADDL(operand.I32(int32(numbers)), lo)
		g.ADDQ(operand.I32(int32(4*lanes*numbers)), dst)
	}
	g.DECQ(groups)
	g.JNZ(operand.LabelRef(again))
	g.finish()
}

// wideProduct is the upper and the lower words of the products of unsigned words.
func (g *gen) wideProduct(x, m reg.VecVirtual) (hi, lo reg.VecVirtual) {
	odd := g.register()
	hi, lo = g.register(), g.register()
	g.VPSRLQ(operand.Imm(32), x, odd)
	g.VPMULUDQ(m, odd, odd)
	g.VPMULUDQ(m, x, hi)
	g.VPMULLD(m, x, lo)
	g.VPSHUFD(operand.Imm(0xf5), hi, hi) // upper words to both places
	g.oddWords(odd, hi)
	return hi, lo
}

// oddWords sets the odd words of d to the odd words of x.
func (g *gen) oddWords(x, d reg.VecVirtual) {
	if !g.avx512 {
		g.VPBLENDD(operand.Imm(0xaa), x, d, d)
		return
	}
	g.VMOVDQA32(x, g.oddLanes, d)
}

// xor sets d ^= x.
func (g *gen) xor(x, d reg.VecVirtual) {
	if g.avx512 {
		g.VPXORD(x, d, d)
	} else {
		g.VPXOR(x, d, d)
	}
}

// writeBytes writes, for each lane, the numbers that the 16 bytes of the words c are.
func (g *gen) writeBytes(c [4]reg.VecVirtual, dst reg.GPVirtual) {
	var t, v [4]reg.VecVirtual
	for i := range t {
		t[i], v[i] = g.register(), g.register()
	}
	g.VPUNPCKLDQ(c[1], c[0], t[0])
	g.VPUNPCKHDQ(c[1], c[0], t[1])
	g.VPUNPCKLDQ(c[3], c[2], t[2])
	g.VPUNPCKHDQ(c[3], c[2], t[3])
	for i := range 2 {
		g.VPUNPCKLQDQ(t[2+i], t[i], v[2*i])
		g.VPUNPCKHQDQ(t[2+i], t[i], v[2*i+1])
	}
	factor, less := g.broadcast(g.address("factor")), g.broadcast(g.word(math.Float32bits(-255)))
	for quarter := range g.size() / 16 {
		for i := range v {
			x := g.XMM()
			switch {
			case quarter == 0:
				x = v[i].AsX().(reg.VecVirtual)
			case g.avx512:
				g.VEXTRACTI32X4(operand.Imm(uint64(quarter)), v[i], x)
			default:
				g.VEXTRACTI128(operand.Imm(uint64(quarter)), v[i], x)
			}
			m := operand.Mem{Base: dst, Disp: 4 * lanes * (4*quarter + i)}
			for h := range 4 * lanes / g.size() {
				if h > 0 {
					y := g.XMM()
					g.VPSRLDQ(operand.Imm(uint64(g.size()/4)), x, y)
					x = y
				}
				f := g.register()
				g.VPMOVZXBD(x, f)
				g.VCVTDQ2PS(f, f)
				g.VADDPS(f, f, f)
				g.VADDPS(less, f, f)
				g.VMULPS(factor, f, f)
				g.VMOVUPS(f, m.Offset(h*g.size()))
			}
		}
	}
}

// broadcast loads the word at m into every lane of a register.
func (g *gen) broadcast(m operand.Mem) reg.VecVirtual {
	r := g.register()
	g.VBROADCASTSS(m, r)
	return r
}

// counting is where the words 0, 1, 2, … lie.
func (g *gen) counting() operand.Mem {
	if g.indices.Symbol.Name == "" {
		g.indices = g.StaticGlobal("counting" + g.suffix)
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range lanes {
			g.AddDatum(4*i, operand.U32(i))
		}
	}
	return g.indices
}
