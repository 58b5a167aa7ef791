package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// columns emits the routines over matrices whose columns are tokens: a vec
// holds one row of 16 of them, and a loop goes down the rows.
func (g *gen) columns() {
	g.products()
	g.featureSums()
	g.featureDots()
	g.featureGrad()
	g.dots()
	g.centre()
	g.normalise()
	g.standardise()
	g.normaliseGrad()
	g.reflect()
	g.reflectGrad()
	g.rotate()
}

// pointer is a register of its own with the value of r.
func (g *gen) pointer(r reg.Register) reg.GPVirtual {
	p := g.GP64()
	g.MOVQ(r, p)
	return p
}

// forEachRow emits body for each of count rows, with the pointers moved from row to
// row by the strides that go with them.
func (g *gen) forEachRow(count reg.Register, pointers, strides []reg.GPVirtual, body func(p []reg.GPVirtual)) {
	left := g.pointer(count)
	p := make([]reg.GPVirtual, len(pointers))
	for i := range p {
		p[i] = g.pointer(pointers[i])
	}
	again := g.label("row")
	g.Label(again)
	body(p)
	for i := range p {
		g.ADDQ(strides[i], p[i])
	}
	g.DECQ(left)
	g.JNZ(operand.LabelRef(again))
}
