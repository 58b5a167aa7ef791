package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rows addresses the rows of a matrix, for which there are too few registers:
// each third row has one, and the two below it lie one and two strides off.
type rows struct {
	g      *gen
	third  []reg.GPVirtual
	stride reg.GPVirtual
}

// rows addresses n rows, the first of them at top. It takes top over.
func (g *gen) rows(top, stride reg.GPVirtual, n int) rows {
	r := rows{g, []reg.GPVirtual{top}, stride}
	for 3*len(r.third) < n {
		p := g.GP64()
		g.LEAQ(operand.Mem{Base: r.third[len(r.third)-1], Index: stride, Scale: 2}, p)
		g.ADDQ(stride, p)
		r.third = append(r.third, p)
	}
	return r
}

// address returns the address of row i.
func (r rows) address(i int) operand.Mem {
	m := operand.Mem{Base: r.third[i/3]}
	if i%3 > 0 {
		m.Index, m.Scale = r.stride, uint8(i%3)
	}
	return m
}

// move moves all rows by a number of bytes.
func (r rows) move(by reg.Register) {
	for _, p := range r.third {
		r.g.ADDQ(by, p)
	}
}

// ladder addresses the unroll rows from one pointer on, which moves down them.
type ladder struct {
	g                         *gen
	top, stride, tripleStride reg.GPVirtual
}

// ladder loads the parameters of that name and stride.
func (g *gen) ladder(name, stride string) ladder {
	l := ladder{g, g.arg(name), g.stride(stride), g.GP64()}
	g.LEAQ(operand.Mem{Base: l.stride, Index: l.stride, Scale: 2}, l.tripleStride)
	return l
}

// address returns the address of row u.
func (l ladder) address(u int) operand.Mem {
	switch u {
	case 0:
		return operand.Mem{Base: l.top}
	case 3:
		return operand.Mem{Base: l.top, Index: l.tripleStride, Scale: 1}
	}
	return operand.Mem{Base: l.top, Index: l.stride, Scale: uint8(u)}
}

// move moves the pointer down by n rows, 1 or unroll of them.
func (l ladder) move(n int) {
	l.g.LEAQ(operand.Mem{Base: l.top, Index: l.stride, Scale: uint8(n)}, l.top)
}
