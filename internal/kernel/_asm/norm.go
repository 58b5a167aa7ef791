package main

// layerNorm emits the two passes over a row that follow its mean.
func (g *gen) layerNorm() {
	g.routine("variance", "n int, x *float32, mean float32) float32", "returns Σ (x - mean)².")
	n, x := g.arg("n"), g.arg("x")
	mean := g.hold(g.param("mean"))
	sums := g.zeros(2)
	g.loop(n, len(sums), func(vecs int) {
		for u := range vecs {
			d := g.valid(g.sub(g.load(x, u), g.get(mean)))
			g.accumulate(sums[u], d, d)
		}
	})
	g.results(g.total(sums))

	g.normalize("normalize", "", "sets dst = (x - mean)·rstd∘gain.")
	g.normalize("normalizeBias", ", bias", "sets dst = (x - mean)·rstd∘gain + bias.")
}

func (g *gen) normalize(name, bias, doc string) {
	g.routine(name, "n int, dst, x, gain"+bias+" *float32, mean, rstd float32)", doc)
	n, dst, x, gain := g.arg("n"), g.arg("dst"), g.arg("x"), g.arg("gain")
	offset := gain
	if bias != "" {
		offset = g.arg("bias")
	}
	mean, rstd := g.hold(g.param("mean")), g.hold(g.param("rstd"))
	g.loop(n, 2, func(vecs int) {
		for u := range vecs {
			h := g.mul(g.sub(g.load(x, u), g.get(mean)), g.get(rstd))
			if bias == "" {
				h = g.mul(h, g.load(gain, u))
			} else {
				g.horner(h, g.load(gain, u), g.load(offset, u))
			}
			g.store(h, dst, u)
		}
	})
	g.finish()
}

// layerNormGrad emits the sums over a row that its gradient needs, and the
// gradients of the row and of the gain.
func (g *gen) layerNormGrad() {
	g.routine("normSums", "n int, dy, x, gain *float32, mean, rstd float32) (s1, s2 float32)",
		"returns Σ dy∘gain and Σ dy∘gain∘(x - mean)·rstd.")
	n, dy, x, gain := g.arg("n"), g.arg("dy"), g.arg("x"), g.arg("gain")
	mean, rstd := g.param("mean"), g.param("rstd")
	s1, s2 := g.zero(), g.zero()
	g.loop(n, 1, func(int) {
		h := g.mul(g.sub(g.load(x, 0), g.get(mean)), g.get(rstd))
		d := g.mul(g.load(dy, 0), g.load(gain, 0))
		g.addTo(s1, d)
		g.accumulate(s2, d, g.valid(h))
	})
	g.results(g.total([]vec{s1}), g.total([]vec{s2}))

	g.routine("normGrad", "n int, dx, dy, x, gain *float32, mean, rstd, s1, s2 float32)",
		"sets dx = rstd·(dy∘gain - s1 - s2·(x - mean)·rstd).")
	n, dy, x, gain = g.arg("n"), g.arg("dy"), g.arg("x"), g.arg("gain")
	dx := g.arg("dx")
	mean, rstd = g.param("mean"), g.param("rstd")
	mean1, mean2 := g.param("s1"), g.param("s2")
	g.loop(n, 1, func(int) {
		h := g.mul(g.sub(g.load(x, 0), g.get(mean)), g.get(rstd))
		d := g.mul(g.load(dy, 0), g.load(gain, 0))
		d = g.sub(d, g.get(mean1))
		g.reduce(d, h, g.get(mean2))
		g.store(g.mul(d, g.get(rstd)), dx, 0)
	})
	g.finish()

	g.routine("gainGrad", "n int, dgain, dy, x *float32, mean, rstd float32)",
		"sets dgain += dy∘(x - mean)·rstd.")
	n, dy, x = g.arg("n"), g.arg("dy"), g.arg("x")
	dgain := g.arg("dgain")
	mean, rstd = g.param("mean"), g.param("rstd")
	g.loop(n, 1, func(int) {
		h := g.mul(g.sub(g.load(x, 0), g.get(mean)), g.get(rstd))
		d := g.load(dgain, 0)
		g.accumulate(d, h, g.load(dy, 0))
		g.store(d, dgain, 0)
	})
	g.finish()
}
