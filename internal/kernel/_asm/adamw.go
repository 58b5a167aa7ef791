package main

import "github.com/mmcloughlin/avo/operand"

// adamW reads its numbers from an AdamWStep, a row of eight float32 in the
// order of the fields.
func (g *gen) adamW() {
	g.routine("adamW", "n int, w, dw, m, v, s *float32)",
		"updates the weights w and moments m, v from the gradient dw with the AdamWStep s.")
	n, weights, grads := g.arg("n"), g.arg("w"), g.arg("dw")
	first, second, s := g.arg("m"), g.arg("v"), g.arg("s")
	field := func(i int) num { return g.num(operand.Mem{Base: s, Disp: 4 * i}) }
	rate, beta1, beta2, eps, decay := field(0), field(1), field(2), field(3), field(4)
	correct1, correct2, gradScale := field(5), field(6), field(7)
	one := g.constant(1)
	g.loop(n, 1, func(int) {
		d := g.mul(g.load(grads, 0), g.get(gradScale))

		m := g.mul(d, g.sub(g.get(one), g.get(beta1)))
		g.accumulate(m, g.load(first, 0), g.get(beta1))
		g.store(m, first, 0)

		v := g.mul(g.mul(d, g.sub(g.get(one), g.get(beta2))), d)
		g.accumulate(v, g.load(second, 0), g.get(beta2))
		g.store(v, second, 0)

		root := g.add(g.sqrt(g.mul(v, g.get(correct2))), g.get(eps))
		step := g.div(g.mul(m, g.get(correct1)), root)
		w := g.load(weights, 0)
		g.accumulate(step, w, g.get(decay))
		g.reduce(w, step, g.get(rate))
		g.store(w, weights, 0)
	})
	g.finish()
}
