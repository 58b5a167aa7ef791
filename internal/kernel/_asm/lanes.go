package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const lanes = 16

// vec is 16 lanes of float32: one zmm, two ymm or four xmm registers.
type vec []reg.VecVirtual

// num is one number in every lane. AVX-512 has the registers to hold it; the
// others have not, and broadcast it from memory at each use.
type num struct {
	held vec
	mem  operand.Mem
}

// gen emits the routines of one instruction set.
type gen struct {
	*build.Context
	avx512 bool   // a vec is one zmm
	neon   bool   // a vec is four xmm, which stand for NEON's registers
	suffix string // of every routine's name

	labels   int
	words    map[uint32]operand.Mem
	masks    operand.Mem       // but for AVX-512: 16 words of ones, 16 of zeros
	indices  operand.Mem       // the words 0 to 15
	oddLanes reg.OpmaskVirtual // AVX-512: lanes 1, 3, 5, …, of a routine that needs them

	i     reg.GPVirtual // index of the element that a loop is at
	tail  bool          // emitting a loop's last, partial vec
	kmask reg.OpmaskVirtual
	ymask vec
	exist reg.GPVirtual // NEON: how many lanes the partial vec has
}

// routine starts a routine; its text is name, suffixed.
func (g *gen) routine(name, signature, doc string) {
	g.Function(name + g.suffix)
	g.Attributes(attr.NOSPLIT)
	g.Pragma("noescape")
	g.SignatureExpr("func(" + signature)
	g.Doc(name + g.suffix + " " + doc)
}

// finish ends a routine that returns nothing.
func (g *gen) finish() {
	g.VZEROUPPER()
	g.RET()
}

// label returns a name that no other label of the file has.
func (g *gen) label(what string) string {
	g.labels++
	return fmt.Sprintf("%s%d", what, g.labels)
}

// arg loads an integer or pointer parameter.
func (g *gen) arg(name string) reg.GPVirtual {
	r := g.GP64()
	g.Load(g.Param(name), r)
	return r
}

// stride loads a parameter that counts float32, in bytes.
func (g *gen) stride(name string) reg.GPVirtual {
	r := g.arg(name)
	g.SHLQ(operand.Imm(2), r)
	return r
}

// address is where a parameter or result lies in the frame.
func (g *gen) address(name string) operand.Mem {
	b, err := g.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// vec is a fresh vector register set.
func (g *gen) vec() vec {
	v := make(vec, 4*lanes/g.size())
	for h := range v {
		v[h] = g.register()
	}
	return v
}

// register is one vector register.
func (g *gen) register() reg.VecVirtual {
	switch {
	case g.avx512:
		return g.ZMM()
	case g.neon:
		return g.XMM()
	}
	return g.YMM()
}

// every is a vec whose registers are all r.
func (g *gen) every(r reg.VecVirtual) vec {
	v := make(vec, 4*lanes/g.size())
	for h := range v {
		v[h] = r
	}
	return v
}

// zero is a vec of zeros.
func (g *gen) zero() vec {
	v := g.vec()
	for _, r := range v {
		g.clear(r)
	}
	return v
}

func (g *gen) clear(r reg.VecVirtual) {
	if g.avx512 {
		g.VPXORD(r, r, r)
	} else {
		g.VPXOR(r, r, r)
	}
}

func (g *gen) zeros(n int) []vec {
	v := make([]vec, n)
	for i := range v {
		v[i] = g.zero()
	}
	return v
}

// num is the number at m, in every lane.
func (g *gen) num(m operand.Mem) num {
	n := num{mem: m}
	if g.avx512 {
		n.held = g.get(n)
	}
	return n
}

// param is the float parameter of that name, in every lane.
func (g *gen) param(name string) num { return g.num(g.address(name)) }

// constant is x in every lane.
func (g *gen) constant(x float32) num { return g.num(g.word(math.Float32bits(x))) }

// stored is constant, broadcast from memory at each use on either instruction
// set: of a routine with more constants than registers.
func (g *gen) stored(x float32) num { return num{mem: g.word(math.Float32bits(x))} }

// word is where 32 bits lie.
func (g *gen) word(x uint32) operand.Mem {
	if g.words == nil {
		g.words = map[uint32]operand.Mem{}
	}
	m, ok := g.words[x]
	if !ok {
		m = g.ConstData(fmt.Sprintf("const%08x%s", x, g.suffix), operand.U32(x))
		g.words[x] = m
	}
	return m
}

// get is n as a vec, for reading only: its registers may be shared.
func (g *gen) get(n num) vec {
	if n.held != nil {
		return n.held
	}
	r := g.register()
	g.VBROADCASTSS(n.mem, r)
	return g.every(r)
}

// hold keeps n in registers over a whole loop, on either instruction set.
func (g *gen) hold(n num) num {
	n.held = g.get(n)
	return n
}

// size is the number of bytes of one register.
func (g *gen) size() int {
	switch {
	case g.avx512:
		return 64
	case g.neon:
		return 16
	}
	return 32
}

// vecAddress returns the memory of the loop's vec u behind pointer p.
func (g *gen) vecAddress(p reg.Register, u int) operand.Mem {
	return operand.Mem{Base: p, Index: g.i, Scale: 4, Disp: 4 * lanes * u}
}

// load reads vec u behind p; lanes past the end are zero.
func (g *gen) load(p reg.Register, u int) vec {
	v := g.vec()
	for h := range v {
		g.loadPart(p, u, h, v[h])
	}
	return v
}

// loadPart reads register h of vec u behind p into r.
func (g *gen) loadPart(p reg.Register, u, h int, r reg.VecVirtual) {
	g.fetch(g.vecAddress(p, u).Offset(h*g.size()), h, r)
}

// fetch reads register h of a vec at m into r.
func (g *gen) fetch(m operand.Mem, h int, r reg.VecVirtual) {
	switch {
	case !g.tail:
		g.VMOVUPS(m, r)
	case g.avx512:
		g.VMOVUPS_Z(m, g.kmask, r)
	case g.neon:
		g.loadLanes(m, h, r)
	default:
		g.VMASKMOVPS(m, g.ymask[h], r)
	}
}

// store writes vec u behind p, up to the end.
func (g *gen) store(v vec, p reg.Register, u int) {
	for h, r := range v {
		g.put(r, h, g.vecAddress(p, u).Offset(h*g.size()))
	}
}

// put writes register h of a vec to m.
func (g *gen) put(r reg.VecVirtual, h int, m operand.Mem) {
	switch {
	case !g.tail:
		g.VMOVUPS(r, m)
	case g.avx512:
		g.VMOVUPS(r, g.kmask, m)
	case g.neon:
		g.storeLanes(r, h, m)
	default:
		g.VMASKMOVPS(r, g.ymask[h], m)
	}
}

// valid is v with lanes past the end set to zero.
func (g *gen) valid(v vec) vec {
	if !g.tail {
		return v
	}
	d := g.vec()
	for h := range d {
		if g.avx512 {
			g.VMOVAPS_Z(v[h], g.kmask, d[h])
		} else {
			g.VANDPS(v[h], g.ymask[h], d[h])
		}
	}
	return d
}

// loop emits body for unroll vecs at a time, then for one, then for the
// partial one at the end. It uses up n.
func (g *gen) loop(n reg.GPVirtual, unroll int, body func(vecs int)) {
	g.i = g.GP64()
	g.XORQ(g.i, g.i)
	part := g.label("part")
	run := func(vecs int, next string) {
		again := g.label("loop")
		g.Label(again)
		g.CMPQ(n, operand.I32(lanes*vecs))
		g.JLT(operand.LabelRef(next))
		body(vecs)
		g.ADDQ(operand.I32(lanes*vecs), g.i)
		g.SUBQ(operand.I32(lanes*vecs), n)
		g.JMP(operand.LabelRef(again))
	}
	if unroll > 1 {
		single := g.label("single")
		run(unroll, single)
		g.Label(single)
	}
	run(1, part)
	g.Label(part)
	done := g.label("done")
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(done))
	g.mask(n)
	g.tail = true
	body(1)
	g.tail = false
	g.Label(done)
}

// mask selects the first n lanes, for 0 < n < 16.
func (g *gen) mask(n reg.GPVirtual) {
	if g.avx512 {
		bits := g.GP32()
		g.MOVL(operand.I32(-1), bits)
		g.BZHIL(n.As32(), bits, bits)
		g.kmask = g.K()
		g.KMOVW(bits, g.kmask)
		return
	}
	g.exist = n
	if g.masks.Symbol.Name == "" {
		g.masks = g.StaticGlobal("masks" + g.suffix)
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range 2 * lanes {
			g.AddDatum(4*i, operand.I32(-(1 - i/lanes)))
		}
	}
	p, off := g.GP64(), g.GP64()
	g.LEAQ(g.masks, p)
	g.MOVQ(n, off)
	g.NEGQ(off)
	g.ymask = g.vec()
	for h, r := range g.ymask {
		g.VMOVUPS(operand.Mem{Base: p, Index: off, Scale: 4, Disp: 4*lanes + h*g.size()}, r)
	}
}

func (g *gen) add(x, y vec) vec { return g.emitBinary(g.VADDPS, x, y) }
func (g *gen) sub(x, y vec) vec { return g.emitBinary(g.VSUBPS, x, y) } // x - y
func (g *gen) mul(x, y vec) vec { return g.emitBinary(g.VMULPS, x, y) }
func (g *gen) div(x, y vec) vec { return g.emitBinary(g.VDIVPS, x, y) } // x / y

// min and max return x where it is NaN.
func (g *gen) min(x, y vec) vec { return g.emitBinary(g.VMINPS, y, x) }
func (g *gen) max(x, y vec) vec { return g.emitBinary(g.VMAXPS, y, x) }

// emitBinary emits a two-operand instruction with x as its first source and returns the result.
func (g *gen) emitBinary(op func(...operand.Op), x, y vec) vec {
	d := g.vec()
	for h := range d {
		op(y[h], x[h], d[h])
	}
	return d
}

// copy is x in registers of its own.
func (g *gen) copy(x vec) vec {
	d := g.vec()
	for h := range d {
		g.VMOVAPS(x[h], d[h])
	}
	return d
}

func (g *gen) sqrt(x vec) vec {
	d := g.vec()
	for h := range d {
		g.VSQRTPS(x[h], d[h])
	}
	return d
}

// round is x rounded to the nearest integers, ties to even.
func (g *gen) round(x vec) vec {
	d := g.vec()
	for h := range d {
		const nearest = 8 // and no exception where x is no integer
		if g.avx512 {
			g.VRNDSCALEPS(operand.Imm(nearest), x[h], d[h])
		} else {
			g.VROUNDPS(operand.Imm(nearest), x[h], d[h])
		}
	}
	return d
}

// integer rounds to integers; a NaN becomes an integer without low bits.
func (g *gen) integer(x vec) vec {
	d := g.vec()
	for h := range d {
		g.VCVTPS2DQ(x[h], d[h])
	}
	return d
}

// accumulate sets d += x·y, with one rounding.
func (g *gen) accumulate(d, x, y vec) {
	for h := range d {
		g.VFMADD231PS(y[h], x[h], d[h])
	}
}

// reduce sets d -= x·y, with one rounding.
func (g *gen) reduce(d, x, y vec) {
	for h := range d {
		g.VFNMADD231PS(y[h], x[h], d[h])
	}
}

// horner sets d = d·x + c, with one rounding.
func (g *gen) horner(d, x, c vec) {
	for h := range d {
		g.VFMADD213PS(c[h], x[h], d[h])
	}
}

// addTo sets d += x.
func (g *gen) addTo(d, x vec) {
	for h := range d {
		g.VADDPS(x[h], d[h], d[h])
	}
}

// fold combines the 16 lanes of v with op, halves first, into one.
func (g *gen) fold(op func(...operand.Op), v vec) reg.Register {
	var x reg.VecVirtual
	if g.neon {
		y := g.XMM()
		x = g.XMM()
		op(v[2], v[0], x)
		op(v[3], v[1], y)
		op(y, x, x)
	} else {
		lo, y := g.YMM(), g.YMM()
		if g.avx512 {
			g.VEXTRACTF64X4(operand.Imm(1), v[0], y)
			op(y, v[0].AsY(), lo)
		} else {
			op(v[1], v[0], lo)
		}
		x = g.XMM()
		g.VEXTRACTF128(operand.Imm(1), lo, x)
		op(x, lo.AsX(), x)
	}
	s := g.XMM()
	g.VPERMILPS(operand.Imm(0x4e), x, s)
	op(s, x, x)
	g.VPERMILPS(operand.Imm(0xb1), x, s)
	op(s, x, x)
	return x
}

// total is the sum of the lanes of the given sums, added pairwise.
func (g *gen) total(sums []vec) reg.Register {
	for len(sums) > 1 {
		half := len(sums) / 2
		for i := range half {
			g.addTo(sums[i], sums[half+i])
		}
		sums = sums[:half]
	}
	return g.fold(g.VADDPS, sums[0])
}

// results ends a routine, returning the low lane of each register.
func (g *gen) results(values ...reg.Register) {
	g.VZEROUPPER()
	for i, r := range values {
		g.Store(r, g.ReturnIndex(i))
	}
	g.RET()
}
