package task

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// Ngram is an n-gram model with up to two tokens of context, a baseline for language models.
// Probabilities of order k are smoothed by order k-1 (Witten and Bell 1991, method C,
// interpolated):
//
//	p(c|h) = (n(h,c) + t(h)·p(c|h')) / (n(h) + t(h))
//
// where t(h) is the number of distinct tokens after h, and h' is h without its first token.
// Below order 0 all tokens have the same probability.
type Ngram struct {
	vocab    int
	counts   [3]map[gram]int           // n(h,c) by order
	contexts [3]map[gram]contextCounts // n(h) and t(h) by order
}

// gram is up to three tokens, oldest first. Lower orders begin with -1.
type gram [3]int32

// contextCounts are n(h) and t(h) of a context.
type contextCounts struct{ total, distinct int }

// prefix returns the gram without its last token.
func (g gram) prefix() gram { return gram{g[0], g[1], -1} }

// lastTokens returns the last order+1 tokens of the gram.
func (g gram) lastTokens(order int) gram {
	for i := range 2 - order {
		g[i] = -1
	}
	return g
}

// countGrams returns the count of each gram of three tokens, and their total.
func countGrams(tokens iter.Seq[int32]) (grams map[gram]int, n int) {
	grams = map[gram]int{}
	var last gram
	seen := 0
	for t := range tokens {
		last = gram{last[1], last[2], t}
		if seen++; seen > 2 {
			grams[last]++
		}
	}
	return grams, max(seen-2, 0)
}

// NewNgram returns the model of a text. Tokens must be below vocab. The first two tokens are
// context only.
func NewNgram(tokens iter.Seq[int32], vocab int) *Ngram {
	t := &Ngram{vocab: vocab}
	grams, _ := countGrams(tokens)
	for order := range t.counts {
		counts, contexts := map[gram]int{}, map[gram]contextCounts{}
		for g, n := range grams {
			counts[g.lastTokens(order)] += n
		}
		for g, n := range counts {
			c := contexts[g.prefix()]
			contexts[g.prefix()] = contextCounts{c.total + n, c.distinct + 1}
		}
		t.counts[order], t.contexts[order] = counts, contexts
	}
	return t
}

// Loss returns the mean of -ln p over all tokens but the first two, for contexts of zero, one
// and two tokens. Bits per byte are Loss/ln 2 × tokens/bytes. The loss of fewer than three
// tokens is NaN.
func (t *Ngram) Loss(tokens iter.Seq[int32]) (order [3]float64) {
	grams, n := countGrams(tokens)
	list := make([]gram, 0, len(grams))
	for g := range grams {
		list = append(list, g)
	}
	// Sort: the random order of a map would change the rounding of the sum.
	slices.SortFunc(list, func(a, b gram) int { return slices.CompareFunc(a[:], b[:], cmp.Compare[int32]) })
	for _, g := range list {
		p := 1 / float64(t.vocab)
		for k := range order {
			if c, ok := t.contexts[k][g.lastTokens(k).prefix()]; ok {
				n := float64(t.counts[k][g.lastTokens(k)])
				p = (n + float64(c.distinct)*p) / float64(c.total+c.distinct)
			}
			order[k] -= float64(grams[g]) * math.Log(p)
		}
	}
	for k := range order {
		order[k] /= float64(n)
	}
	return order
}
