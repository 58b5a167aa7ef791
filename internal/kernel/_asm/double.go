package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// doubles is 16 lanes of float64.
type doubles []reg.VecVirtual

// double is v in float64.
func (g *gen) double(v vec) doubles {
	var d doubles
	for h := range v {
		d = append(d, g.half(v, 2*h), g.half(v, 2*h+1))
	}
	return d
}

// half is half i of the registers of v in float64.
func (g *gen) half(v vec, i int) reg.VecVirtual {
	if i%2 == 0 {
		return g.lower(v[i/2])
	}
	return g.upper(v[i/2])
}

// lower is the lower half of r in float64.
func (g *gen) lower(r reg.VecVirtual) reg.VecVirtual {
	d := g.register()
	if g.avx512 {
		g.VCVTPS2PD(r.AsY(), d)
	} else {
		g.VCVTPS2PD(r.AsX(), d) // NEON: the lower half of it
	}
	return d
}

// upper is the upper half of r in float64.
func (g *gen) upper(r reg.VecVirtual) reg.VecVirtual {
	d := g.register()
	switch {
	case g.avx512:
		y := g.YMM()
		g.VEXTRACTF64X4(operand.Imm(1), r, y)
		g.VCVTPS2PD(y, d)
	case g.neon:
		x := g.XMM()
		g.VPERMILPS(operand.Imm(0x4e), r, x)
		g.VCVTPS2PD(x, d)
	default:
		x := g.XMM()
		g.VEXTRACTF128(operand.Imm(1), r, x)
		g.VCVTPS2PD(x, d)
	}
	return d
}

// single is d rounded to float32.
func (g *gen) single(d doubles) vec {
	var v vec
	for h := 0; h < len(d); h += 2 {
		v = append(v, g.convertToFloat32(d[h:]))
	}
	return v
}

// convertToFloat32 rounds the first two registers of d to one register of float32.
func (g *gen) convertToFloat32(d doubles) reg.VecVirtual {
	r := g.register()
	switch {
	case g.avx512:
		lo, hi := g.YMM(), g.YMM()
		g.VCVTPD2PS(d[0], lo)
		g.VCVTPD2PS(d[1], hi)
		g.VINSERTF64X4(operand.Imm(1), hi, lo.AsZ(), r)
	case g.neon:
		lo, hi := g.XMM(), g.XMM()
		g.VCVTPD2PSX(d[0], lo)
		g.VCVTPD2PSX(d[1], hi)
		g.VUNPCKLPD(hi, lo, r)
	default:
		lo, hi := g.XMM(), g.XMM()
		g.VCVTPD2PSY(d[0], lo)
		g.VCVTPD2PSY(d[1], hi)
		g.VINSERTF128(operand.Imm(1), hi, lo.AsY(), r)
	}
	return r
}

// each applies op to d in place.
func (g *gen) each(d doubles, op func(...operand.Op)) {
	for _, r := range d {
		op(r, r)
	}
}

// inner is Σ x_r∘y_r over rows, in float64. It takes a register of each at a
// time: whole vecs would be more than AVX2 has room for.
func (g *gen) inner(rows, x, y, rs reg.GPVirtual) doubles {
	sum := g.double(g.zero())
	g.forEachRow(rows, []reg.GPVirtual{x, y}, []reg.GPVirtual{rs, rs}, func(row []reg.GPVirtual) {
		a, b := g.vec(), g.vec()
		for h := range a {
			g.loadPart(row[0], 0, h, a[h])
			if x != y {
				g.loadPart(row[1], 0, h, b[h])
			}
			for i := 2 * h; i < 2*h+2; i++ {
				p := g.half(a, i)
				q := p
				if x != y {
					q = g.half(b, i)
				}
				g.VFMADD231PD(p, q, sum[i])
			}
		}
	})
	return sum
}

// quotient is x/size, with zero in place of lanes where size is below the parameter limit.
func (g *gen) quotient(x reg.VecVirtual, size doubles) doubles {
	d := make(doubles, len(size))
	for h := range d {
		d[h] = g.register()
		g.VDIVPD(size[h], x, d[h])
	}
	return g.unless(d, size)
}

// unless is d with zero in place of lanes where size is below the parameter limit. It
// takes d over.
func (g *gen) unless(d, size doubles) doubles {
	const notLess = 5
	limit := g.half(g.get(g.param("limit")), 0)
	for h := range d {
		if g.avx512 {
			k := g.K()
			g.VCMPPD(operand.Imm(notLess), limit, size[h], k)
			g.VMOVAPD_Z(d[h], k, d[h])
		} else {
			mask := g.register()
			g.VCMPPD(operand.Imm(notLess), limit, size[h], mask)
			g.VANDPD(mask, d[h], d[h])
		}
	}
	return d
}
