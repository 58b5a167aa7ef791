package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

// An xmm register has the four lanes of a NEON register, and nearly every AVX
// instruction on xmm registers is one or two of NEON. So a routine for arm64 is
// described like one for AVX2, of four registers a vec, has its registers
// chosen in the same way, and is then translated: this file does that.
//
// General registers keep their number, and so do vector registers up to the
// last two, which like R16 and R17 hold what an instruction needs in between.

// Pseudo-instructions, of NEON alone.
const (
	byLane     = "byLane"     // b, x, d: d += b·x[0]
	loadLanes  = "loadLanes"  // m, n, i, d: lanes of d from i on exist up to n, and the others are zero
	storeLanes = "storeLanes" // d, n, i, m
)

// byLane sets d += b·x[0].
func (g *gen) byLane(b, x, d reg.VecVirtual) {
	ops := []operand.Op{b, x, d}
	g.Instruction(&ir.Instruction{Opcode: byLane, Operands: ops, Inputs: ops, Outputs: ops[2:]})
}

// loadLanes reads register h of a partial vec.
func (g *gen) loadLanes(m operand.Mem, h int, r reg.VecVirtual) {
	ops := []operand.Op{m, g.exist, operand.Imm(uint64(4 * h)), r}
	g.Instruction(&ir.Instruction{Opcode: loadLanes, Operands: ops, Inputs: ops[:2], Outputs: ops[3:]})
}

// storeLanes writes register h of a partial vec.
func (g *gen) storeLanes(r reg.VecVirtual, h int, m operand.Mem) {
	ops := []operand.Op{r, g.exist, operand.Imm(uint64(4 * h)), m}
	g.Instruction(&ir.Instruction{Opcode: storeLanes, Operands: ops, Inputs: ops[:2], Outputs: ops[3:]})
}

// compileNEON is pass.Compile without what belongs to amd64 alone.
var compileNEON = pass.Concat(
	pass.Verify,
	pass.FunctionPass(pass.PruneJumpToFollowingLabel),
	pass.FunctionPass(pass.PruneDanglingLabels),
	pass.FunctionPass(pass.LabelTarget),
	pass.FunctionPass(pass.CFG),
	pass.InstructionPass(pass.ZeroExtend32BitOutputs),
	pass.FunctionPass(pass.Liveness),
	pass.FunctionPass(pass.AllocateRegisters),
	pass.FunctionPass(pass.BindRegisters),
	pass.FunctionPass(pass.VerifyAllocation),
	pass.FunctionPass(pass.PruneSelfMoves),
)

// word is the encoding of an instruction whose operands are zero, and how it is
// written: with the numbers of the result and of one or two sources.
type word struct {
	bits uint32
	text string
}

// Go's assembler lacks most of these; those it has would be hard to tell apart.
var words = map[string]word{
	"fadd": {0x4e20d400, "fadd v%d.4s, v%d.4s, v%d.4s"}, "fadd2": {0x4e60d400, "fadd v%d.2d, v%d.2d, v%d.2d"},
	"fsub": {0x4ea0d400, "fsub v%d.4s, v%d.4s, v%d.4s"},
	"fmul": {0x6e20dc00, "fmul v%d.4s, v%d.4s, v%d.4s"},
	"fdiv": {0x6e20fc00, "fdiv v%d.4s, v%d.4s, v%d.4s"}, "fdiv2": {0x6e60fc00, "fdiv v%d.2d, v%d.2d, v%d.2d"},
	"fmla": {0x4e20cc00, "fmla v%d.4s, v%d.4s, v%d.4s"}, "fmla2": {0x4e60cc00, "fmla v%d.2d, v%d.2d, v%d.2d"},
	"fmls": {0x4ea0cc00, "fmls v%d.4s, v%d.4s, v%d.4s"}, "fmls2": {0x4ee0cc00, "fmls v%d.2d, v%d.2d, v%d.2d"},
	"fcmgt": {0x6ea0e400, "fcmgt v%d.4s, v%d.4s, v%d.4s"}, "fcmgt2": {0x6ee0e400, "fcmgt v%d.2d, v%d.2d, v%d.2d"},
	"fcmge": {0x6e20e400, "fcmge v%d.4s, v%d.4s, v%d.4s"}, "fcmge2": {0x6e60e400, "fcmge v%d.2d, v%d.2d, v%d.2d"},
	"fsqrt": {0x6ea1f800, "fsqrt v%d.4s, v%d.4s"}, "fsqrt2": {0x6ee1f800, "fsqrt v%d.2d, v%d.2d"},
	"fneg":   {0x6ea0f800, "fneg v%d.4s, v%d.4s"},
	"frintn": {0x4e218800, "frintn v%d.4s, v%d.4s"},
	"fcvtns": {0x4e21a800, "fcvtns v%d.4s, v%d.4s"},
	"scvtf":  {0x4e21d800, "scvtf v%d.4s, v%d.4s"},
	"fcvtl":  {0x0e617800, "fcvtl v%d.2d, v%d.2s"},
	"fcvtn":  {0x0e616800, "fcvtn v%d.2s, v%d.2d"},
	"faddp":  {0x6e20d400, "faddp v%d.4s, v%d.4s, v%d.4s"},
	"lane":   {0x4f801000, "fmla v%d.4s, v%d.4s, v%d.s[0]"},
	"fadds":  {0x1e202800, "fadd s%d, s%d, s%d"},
	"fmuls":  {0x1e200800, "fmul s%d, s%d, s%d"},
	"fdivs":  {0x1e201800, "fdiv s%d, s%d, s%d"},
	"fsqrts": {0x1e21c000, "fsqrt s%d, s%d"},

	"and": {0x4e201c00, "and v%d.16b, v%d.16b, v%d.16b"},
	"bic": {0x4e601c00, "bic v%d.16b, v%d.16b, v%d.16b"},
	"orr": {0x4ea01c00, "orr v%d.16b, v%d.16b, v%d.16b"},
	"eor": {0x6e201c00, "eor v%d.16b, v%d.16b, v%d.16b"},
	"bit": {0x6ea01c00, "bit v%d.16b, v%d.16b, v%d.16b"},
	"bif": {0x6ee01c00, "bif v%d.16b, v%d.16b, v%d.16b"},
	"not": {0x6e205800, "mvn v%d.16b, v%d.16b"},

	"add":   {0x4ea08400, "add v%d.4s, v%d.4s, v%d.4s"},
	"mul":   {0x4ea09c00, "mul v%d.4s, v%d.4s, v%d.4s"},
	"smax":  {0x4ea06400, "smax v%d.4s, v%d.4s, v%d.4s"},
	"umull": {0x2ea0c000, "umull v%d.2d, v%d.2s, v%d.2s"},
	"uxtl8": {0x2f08a400, "ushll v%d.8h, v%d.8b, #0"}, "uxtl": {0x2f10a400, "ushll v%d.4s, v%d.4h, #0"},
	"xtn": {0x0e612800, "xtn v%d.4h, v%d.4s"},

	"zip1": {0x4e803800, "zip1 v%d.4s, v%d.4s, v%d.4s"}, "zip1d": {0x4ec03800, "zip1 v%d.2d, v%d.2d, v%d.2d"},
	"zip2": {0x4e807800, "zip2 v%d.4s, v%d.4s, v%d.4s"}, "zip2d": {0x4ec07800, "zip2 v%d.2d, v%d.2d, v%d.2d"},
	"uzp1": {0x4e801800, "uzp1 v%d.4s, v%d.4s, v%d.4s"},
	"trn2": {0x4e806800, "trn2 v%d.4s, v%d.4s, v%d.4s"},
	"rev":  {0x4ea00800, "rev64 v%d.4s, v%d.4s"},
	"dup":  {0x4e040400, "dup v%d.4s, v%d.s[0]"},
	"ins1": {0x6e0c2400, "mov v%d.s[1], v%d.s[1]"}, "ins3": {0x6e1c6400, "mov v%d.s[3], v%d.s[3]"},
	"ld1r": {0x4d40c800, "ld1r {v%d.4s}, [x%d]"},
}

// Instructions of AVX that are one of NEON, with a second source, and with one.
var (
	binaries = map[string]string{
		"VADDPS": "fadd", "VSUBPS": "fsub", "VMULPS": "fmul", "VDIVPS": "fdiv",
		"VADDPD": "fadd2", "VDIVPD": "fdiv2",
		"VHADDPS": "faddp",
		"VANDPS":  "and", "VANDPD": "and", "VORPS": "orr", "VORPD": "orr", "VPXOR": "eor", "VXORPS": "eor",
		"VPADDD": "add", "VPMULLD": "mul", "VPMAXSD": "smax",
		"VUNPCKLPS": "zip1", "VUNPCKHPS": "zip2", "VUNPCKLPD": "zip1d", "VUNPCKHPD": "zip2d",
		"VPUNPCKLDQ": "zip1", "VPUNPCKHDQ": "zip2", "VPUNPCKLQDQ": "zip1d", "VPUNPCKHQDQ": "zip2d",
	}
	unaries = map[string]string{
		"VSQRTPS": "fsqrt", "VSQRTPD": "fsqrt2", "VCVTPS2DQ": "fcvtns", "VCVTDQ2PS": "scvtf",
		"VCVTPS2PD": "fcvtl", "VCVTPD2PSX": "fcvtn", "VPBROADCASTD": "dup",
	}
	scalars  = map[string]string{"VADDSS": "fadds", "VMULSS": "fmuls", "VDIVSS": "fdivs"}
	branches = map[string]string{
		"JMP": "JMP", "JE": "BEQ", "JZ": "BEQ", "JNZ": "BNE", "JLT": "BLT", "JGE": "BGE", "JLE": "BLE",
	}
	// On general registers, with the flags that branches ask for.
	integers = map[string]string{
		"ADDQ": "ADDS", "SUBQ": "SUBS", "ADDL": "ADDSW", "ORL": "ORRW", "ANDL": "ANDW", "IMULQ": "MUL",
		"SHLQ": "LSL", "SHLL": "LSLW", "CMPQ": "CMP", "CMPL": "CMPW",
	}
)

// Registers in between.
const (
	temp, temp2         = 30, 31 // vectors
	pointer, scratch    = 16, 17
	firstBase, lastBase = 19, 26 // sums of a base and an index that are kept
)

// sum is a base and a scaled index, kept in a register.
type sum struct {
	base, index int
	shift       int
	register    int
}

// neon translates a file.
type neon struct {
	bytes.Buffer
	words  map[string]uint32 // constants by name
	sums   []sum
	next   int // register of the next sum
	labels int
}

// printNEON is the text of a file that compileNEON has been through.
func printNEON(file *ir.File) (text []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	p := &neon{words: map[string]uint32{}}
	p.WriteString("// Code generated by internal/kernel/_asm. DO NOT EDIT.\n\n//go:build !purego\n\n#include \"textflag.h\"\n")
	for _, s := range file.Sections {
		g, ok := s.(*ir.Global)
		if !ok {
			continue
		}
		if x, ok := g.Data[0].Value.(operand.U32); ok && len(g.Data) == 1 {
			p.words[g.Symbol.Name] = uint32(x)
			continue
		}
		p.WriteByte('\n')
		for _, d := range g.Data {
			fmt.Fprintf(p, "DATA %s+%d(SB)/%d, %s\n", g.Symbol, d.Offset, d.Value.Bytes(), d.Value.Asm())
		}
		fmt.Fprintf(p, "GLOBL %s(SB), %s, $%d\n", g.Symbol, g.Attributes.Asm(), g.Size)
	}
	for _, f := range file.Functions() {
		fmt.Fprintf(p, "\n// %s\nTEXT ·%s(SB), %s, $%d-%d\n", f.Stub(), f.Name, f.Attributes.Asm(), f.FrameBytes(), f.ArgumentBytes())
		p.sums = nil
		for _, n := range f.Nodes {
			switch n := n.(type) {
			case ir.Label:
				fmt.Fprintf(p, "%s:\n", n)
				p.sums = nil
			case *ir.Instruction:
				p.instruction(n)
			}
		}
	}
	return p.Bytes(), nil
}

// line writes an instruction of Go's assembler.
func (p *neon) line(format string, args ...any) { fmt.Fprintf(p, "\t"+format+"\n", args...) }

// writeWord writes the word bits and, as a comment, the instruction that bits encode.
func (p *neon) writeWord(bits uint32, format string, args ...any) {
	p.line("WORD $0x%08x // "+format, append([]any{bits}, args...)...)
}

// do writes the instruction of that name in words.
func (p *neon) do(name string, d int, sources ...int) {
	w, ok := words[name]
	if !ok || strings.Count(w.text, "%d") != 1+len(sources) {
		panic("no such instruction: " + name)
	}
	bits, args := w.bits|uint32(d), []any{d}
	for i, s := range sources {
		bits |= uint32(s) << (5 + 11*i)
		args = append(args, s)
	}
	p.writeWord(bits, w.text, args...)
}

// move copies a vector register.
func (p *neon) move(d, x int) {
	if d != x {
		p.do("orr", d, x, x)
	}
}

// extract sets d to the last 16-n bytes of x and the first n of y.
func (p *neon) extract(d, x, y, n int) {
	p.writeWord(0x6e000000|uint32(y<<16|n<<11|x<<5|d), "ext v%d.16b, v%d.16b, v%d.16b, #%d", d, x, y, n)
}

// number returns the number of a register.
func number(op operand.Op) int {
	r := op.(reg.Physical)
	if r.Kind() == reg.KindVector && r.PhysicalIndex() >= temp {
		panic("more vector registers than NEON has to spare")
	}
	return int(r.PhysicalIndex())
}

// immediate is the value of a constant.
func immediate(op operand.Op) int64 {
	switch x := op.(type) {
	case operand.U8:
		return int64(x)
	case operand.U32:
		return int64(x)
	case operand.I32:
		return int64(x)
	}
	panic(fmt.Sprintf("constant %T", op))
}

func isMemory(op operand.Op) bool { _, ok := op.(operand.Mem); return ok }

// address is m as Go's assembler writes it.
func (p *neon) address(op operand.Op) string {
	m := op.(operand.Mem)
	switch m.Base {
	case reg.FramePointer:
		return fmt.Sprintf("%s+%d(FP)", m.Symbol, m.Disp)
	case reg.StackPointer:
		return fmt.Sprintf("%d(RSP)", 8+m.Disp) // the link register lies below
	case reg.StaticBase:
		p.line("MOVD $%s(SB), R%d", m.Symbol, pointer)
		return fmt.Sprintf("%d(R%d)", m.Disp, pointer)
	}
	return fmt.Sprintf("%d(R%d)", m.Disp, p.base(m))
}

// base is a register that m's displacement is from.
func (p *neon) base(m operand.Mem) int {
	if m.Index == nil {
		return number(m.Base)
	}
	s := sum{base: number(m.Base), index: number(m.Index), shift: shift(m.Scale)}
	for _, kept := range p.sums {
		s.register = kept.register
		if s == kept {
			return s.register
		}
	}
	p.next = (p.next + 1) % (lastBase - firstBase + 1)
	s.register = firstBase + p.next
	p.forget(func(kept sum) bool { return kept.register == s.register })
	p.line("ADD R%d<<%d, R%d, R%d", s.index, s.shift, s.base, s.register)
	p.sums = append(p.sums, s)
	return s.register
}

func shift(scale uint8) int { return map[uint8]int{1: 0, 2: 1, 4: 2, 8: 3}[scale] }

// forget drops kept sums.
func (p *neon) forget(stale func(sum) bool) {
	kept := p.sums[:0]
	for _, s := range p.sums {
		if !stale(s) {
			kept = append(kept, s)
		}
	}
	p.sums = kept
}

// point sets register pointer to the address of op.
func (p *neon) point(op operand.Op) { p.line("MOVD $%s, R%d", p.address(op), pointer) }

// vector is the register of an operand, into which memory is loaded.
func (p *neon) vector(op operand.Op, into int) int {
	if !isMemory(op) {
		return number(op)
	}
	p.line("FMOVQ %s, F%d", p.address(op), into)
	return into
}

// scalar is vector for a single number.
func (p *neon) scalar(op operand.Op, into int) int {
	if !isMemory(op) {
		return number(op)
	}
	p.line("FMOVS %s, F%d", p.address(op), into)
	return into
}

// general is the general register of an operand, or a constant, as text.
func (p *neon) general(op operand.Op) string {
	switch op := op.(type) {
	case operand.Mem:
		p.line("MOVD %s, R%d", p.address(op), scratch)
		return fmt.Sprintf("R%d", scratch)
	case reg.Physical:
		return fmt.Sprintf("R%d", number(op))
	}
	return fmt.Sprintf("$%d", immediate(op))
}

// instruction translates one. Operands are in the order of Go: the result last,
// and before it the first source after the second.
func (p *neon) instruction(i *ir.Instruction) {
	ops := i.Operands
	last := len(ops) - 1
	switch name := i.Opcode; name {
	case "RET":
		p.line("RET")
	case "VZEROUPPER":
	case "VMOVUPS", "VMOVAPS", "VMOVAPD":
		switch {
		case isMemory(ops[1]):
			p.line("FMOVQ F%d, %s", number(ops[0]), p.address(ops[1]))
		case isMemory(ops[0]):
			p.vector(ops[0], number(ops[1]))
		default:
			p.move(number(ops[1]), number(ops[0]))
		}
	case "VMOVSS", "MOVSS":
		if isMemory(ops[1]) {
			p.line("FMOVS F%d, %s", number(ops[0]), p.address(ops[1]))
		} else {
			p.scalar(ops[0], number(ops[1]))
		}
	case "VMOVD":
		kind := func(op operand.Op) string {
			if op.(reg.Register).Kind() == reg.KindGP {
				return "R"
			}
			return "F"
		}
		p.line("FMOVS %s%d, %s%d", kind(ops[0]), number(ops[0]), kind(ops[1]), number(ops[1]))
	case "VBROADCASTSS":
		p.broadcast(ops[0], number(ops[1]))
	case byLane:
		p.do("lane", number(ops[2]), number(ops[0]), number(ops[1]))
	case loadLanes, storeLanes:
		p.lanes(name, ops)
	case "VFMADD231SS":
		x, d := p.scalar(ops[0], temp), number(ops[2])
		n := number(ops[1])
		p.writeWord(0x1f000000|uint32(x<<16|d<<10|n<<5|d), "fmadd s%d, s%d, s%d, s%d", d, n, x, d)
	case "VSQRTSS": // the other lanes are unused
		p.do("fsqrts", number(ops[2]), p.scalar(ops[0], temp))
	case "VFMADD231PS":
		p.do("fmla", number(ops[2]), number(ops[1]), p.vector(ops[0], temp))
	case "VFNMADD231PS":
		p.do("fmls", number(ops[2]), number(ops[1]), p.vector(ops[0], temp))
	case "VFMADD231PD":
		p.do("fmla2", number(ops[2]), number(ops[1]), p.vector(ops[0], temp))
	case "VFNMADD231PD":
		p.do("fmls2", number(ops[2]), number(ops[1]), p.vector(ops[0], temp))
	case "VFMADD213PS", "VFMSUB213PS":
		p.fused(name[:6] == "VFMSUB", number(ops[2]), number(ops[1]), p.vector(ops[0], temp2))
	case "VFMADD132PS", "VFMSUB132PS":
		p.fused(name[:6] == "VFMSUB", number(ops[2]), p.vector(ops[0], temp), number(ops[1]))
	case "VMINPS", "VMAXPS", "VMAXPD":
		p.extreme(name, number(ops[2]), number(ops[1]), p.vector(ops[0], temp))
	case "VCMPPS", "VCMPPD":
		p.compare(name == "VCMPPD", immediate(ops[0]), number(ops[3]), number(ops[2]), p.vector(ops[1], temp))
	case "VANDNPS":
		p.do("bic", number(ops[2]), p.vector(ops[0], temp), number(ops[1]))
	case "VBLENDVPS", "VBLENDVPD":
		mask, yes, no, d := number(ops[0]), number(ops[1]), number(ops[2]), number(ops[3])
		if d == yes {
			p.do("bif", d, no, mask)
			break
		}
		p.move(temp, no)
		p.do("bit", temp, yes, mask)
		p.move(d, temp)
	case "VROUNDPS":
		p.do("frintn", number(ops[2]), number(ops[1])) // which raises no exception where 8 asks for none
	case "VPERMILPS":
		x, d := number(ops[1]), number(ops[2])
		switch immediate(ops[0]) {
		case 0x4e:
			p.extract(d, x, x, 8)
		case 0xb1:
			p.do("rev", d, x)
		default:
			panic("an order that nobody needs")
		}
	case "VPSHUFD":
		if immediate(ops[0]) != 0xf5 {
			panic("an order that nobody needs")
		}
		x := number(ops[1])
		p.do("trn2", number(ops[2]), x, x)
	case "VPSRLDQ":
		p.do("eor", temp, temp, temp)
		p.extract(number(ops[2]), number(ops[1]), temp, int(immediate(ops[0])))
	case "VPSLLD":
		n, x, d := immediate(ops[0]), number(ops[1]), number(ops[2])
		p.writeWord(0x4f005400|uint32(32+n)<<16|uint32(x<<5|d), "shl v%d.4s, v%d.4s, #%d", d, x, n)
	case "VPSRLQ":
		n, x, d := immediate(ops[0]), number(ops[1]), number(ops[2])
		p.writeWord(0x6f000400|uint32(128-n)<<16|uint32(x<<5|d), "ushr v%d.2d, v%d.2d, #%d", d, x, n)
	case "VPMULUDQ":
		y, x := p.vector(ops[0], temp), number(ops[1])
		p.do("uzp1", temp, y, y)
		p.do("uzp1", temp2, x, x)
		p.do("umull", number(ops[2]), temp, temp2)
	case "VPBLENDD":
		x, d := number(ops[1]), number(ops[3])
		if immediate(ops[0]) != 0xaa || number(ops[2]) != d {
			panic("a blend that nobody needs")
		}
		p.do("ins1", d, x)
		p.do("ins3", d, x)
	case "VPMOVZXBD":
		p.do("uxtl8", temp, number(ops[0]))
		p.do("uxtl", number(ops[1]), temp)
	case "VMOVMSKPD":
		x, d := number(ops[0]), number(ops[1])
		p.do("uzp1", temp, x, x) // a word of each
		p.line("FMOVD F%d, R%d", temp, scratch)
		p.line("AND $1, R%d, R%d", scratch, pointer)
		p.line("LSR $62, R%d, R%d", scratch, scratch)
		p.line("AND $2, R%d, R%d", scratch, scratch)
		p.line("ORR R%d, R%d, R%d", scratch, pointer, d)
	case "VMOVMSKPS":
		x, d := number(ops[0]), number(ops[1])
		p.do("xtn", temp, x) // 16 bits of each
		p.line("FMOVD F%d, R%d", temp, scratch)
		p.line("AND $0x0008000400020001, R%d, R%d", scratch, scratch)
		p.line("ORR R%d>>32, R%d, R%d", scratch, scratch, scratch)
		p.line("ORR R%d>>16, R%d, R%d", scratch, scratch, scratch)
		p.line("AND $15, R%d, R%d", scratch, d)

	case "PREFETCHT0":
		p.line("PRFM %s, PLDL1KEEP", p.address(ops[0]))
	case "MOVQ":
		if isMemory(ops[0]) {
			p.line("MOVD %s, R%d", p.address(ops[0]), number(ops[1]))
		} else if isMemory(ops[1]) {
			p.line("MOVD %s, %s", p.general(ops[0]), p.address(ops[1]))
		} else {
			p.line("MOVD %s, R%d", p.general(ops[0]), number(ops[1]))
		}
	case "MOVL":
		p.line("MOVWU %s, R%d", p.address(ops[0]), number(ops[1]))
	case "MOVLQSX":
		p.line("MOVW %s, R%d", p.address(ops[0]), number(ops[1]))
	case "MOVBLZX":
		p.line("MOVBU %s, R%d", p.address(ops[0]), number(ops[1]))
	case "LEAQ":
		p.effective(ops[0].(operand.Mem), number(ops[1]))
	case "XORQ", "XORL":
		if number(ops[0]) != number(ops[1]) {
			panic(name + " of two registers")
		}
		p.line("MOVD ZR, R%d", number(ops[1]))
	case "NEGQ":
		p.line("NEG R%[1]d, R%[1]d", number(ops[0]))
	case "DECQ":
		p.inPlace("SUBS", "$1", ops[0])
	case "ADDQ", "SUBQ", "ADDL", "ORL", "ANDL", "IMULQ", "SHLQ", "SHLL":
		p.inPlace(integers[name], p.general(ops[0]), ops[1])
	case "CMPQ", "CMPL":
		p.line("%s %s, %s", integers[name], p.general(ops[1]), p.general(ops[0]))
	case "TESTQ":
		p.line("CMP $0, R%d", number(ops[0]))
	case "TESTL":
		p.line("CMPW $0, R%d", number(ops[0]))
	case "CMOVQLT":
		p.line("CSEL LT, R%d, R%[2]d, R%[2]d", number(ops[0]), number(ops[1]))
	default:
		switch {
		case binaries[name] != "":
			p.do(binaries[name], number(ops[last]), number(ops[1]), p.vector(ops[0], temp))
		case unaries[name] != "":
			p.do(unaries[name], number(ops[last]), p.vector(ops[0], temp))
		case scalars[name] != "":
			p.do(scalars[name], number(ops[last]), number(ops[1]), p.scalar(ops[0], temp))
		case branches[name] != "":
			p.line("%s %s", branches[name], ops[0].Asm())
		default:
			panic(fmt.Sprintf("no translation of %s", name))
		}
	}
	for _, op := range i.Outputs {
		if r, ok := op.(reg.Physical); ok && r.Kind() == reg.KindGP {
			n := number(r)
			p.forget(func(s sum) bool { return s.base == n || s.index == n })
		}
	}
}

// inPlace is name with its result and first source in one place.
func (p *neon) inPlace(name, by string, op operand.Op) {
	if !isMemory(op) {
		p.line("%s %s, R%[3]d, R%[3]d", name, by, number(op))
		return
	}
	m := p.address(op)
	p.line("MOVD %s, R%d", m, scratch)
	p.line("%s %s, R%[3]d, R%[3]d", name, by, scratch)
	p.line("MOVD R%d, %s", scratch, m)
}

// effective sets a register to the address m.
func (p *neon) effective(m operand.Mem, d int) {
	switch {
	case m.Base == reg.StaticBase:
		p.line("MOVD $%s+%d(SB), R%d", m.Symbol, m.Disp, d)
		return
	case m.Index != nil:
		p.line("ADD R%d<<%d, R%d, R%d", number(m.Index), shift(m.Scale), number(m.Base), d)
	default:
		p.line("MOVD R%d, R%d", number(m.Base), d)
	}
	if m.Disp != 0 {
		p.line("ADD $%d, R%[2]d, R%[2]d", m.Disp, d)
	}
}

// broadcast sets all lanes of d to a number in memory or in the low lane.
func (p *neon) broadcast(op operand.Op, d int) {
	m, ok := op.(operand.Mem)
	if !ok {
		p.do("dup", d, number(op))
		return
	}
	if x, ok := p.words[m.Symbol.Name]; ok && m.Base == reg.StaticBase {
		both := uint64(x)<<32 | uint64(x)
		p.line("VMOVQ $0x%016x, $0x%016x, V%d", both, both, d)
		return
	}
	if m.Symbol.Name == "" && m.Disp == 0 && m.Base != reg.StackPointer {
		p.do("ld1r", d, p.base(m))
		return
	}
	p.scalar(m, d)
	p.do("dup", d, d)
}

// fused sets d = d·x + c, or d·x - c.
func (p *neon) fused(less bool, d, x, c int) {
	if less {
		p.do("fneg", temp2, c)
	} else {
		p.move(temp2, c)
	}
	p.do("fmla", temp2, d, x)
	p.move(d, temp2)
}

// extreme sets d to x where that is the smaller or the larger one, and to y
// where it is not or either is NaN.
func (p *neon) extreme(name string, d, x, y int) {
	larger := map[string]string{"VMAXPS": "fcmgt", "VMAXPD": "fcmgt2", "VMINPS": "fcmgt"}[name]
	if name == "VMINPS" {
		p.do(larger, temp2, y, x)
	} else {
		p.do(larger, temp2, x, y)
	}
	if d == x {
		p.do("bif", d, y, temp2)
		return
	}
	p.move(d, y)
	p.do("bit", d, x, temp2)
}

// compare sets d to ones where x and y are as the predicate says.
func (p *neon) compare(double bool, predicate int64, d, x, y int) {
	greater, atLeast := "fcmgt", "fcmge"
	if double {
		greater, atLeast = "fcmgt2", "fcmge2"
	}
	switch predicate {
	case 0x11: // less than
		p.do(greater, d, y, x)
		return
	case 0x05, 0x15: // not less than
		p.do(greater, d, y, x)
	case 0x16: // not at most
		p.do(atLeast, d, y, x)
	case 0x19: // not at least
		p.do(atLeast, d, x, y)
	default:
		panic("a comparison that nobody needs")
	}
	p.do("not", d, d)
}

// lanes translates loadLanes and storeLanes.
func (p *neon) lanes(name string, ops []operand.Op) {
	m, r := ops[0], ops[3]
	if name == storeLanes {
		m, r = r, m
	}
	n, first, v := number(ops[1]), immediate(ops[2]), number(r)
	p.labels++
	done := fmt.Sprintf("lanes%d", p.labels)
	p.point(m)
	if name == loadLanes {
		p.do("eor", v, v, v)
	}
	for i := range int64(4) {
		p.line("CMP $%d, R%d", first+i, n)
		p.line("BLE %s", done)
		if name == loadLanes {
			p.line("VLD1.P 4(R%d), V%d.S[%d]", pointer, v, i)
		} else {
			p.line("VST1.P V%d.S[%d], 4(R%d)", v, i, pointer)
		}
	}
	fmt.Fprintf(p, "%s:\n", done)
}
