package task

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// Ngram is a table of how often tokens follow the two before them: what a model
// has to beat to have learned more than spelling. Probabilities of order k are
// smoothed by those of order k-1 (Witten and Bell 1991, method C, interpolated):
//
//	p(c|h) = (n(h,c) + t(h)·p(c|h')) / (n(h) + t(h))
//
// where t(h) is the number of different tokens seen after h, h' is h without its
// first token, and below order 0 every token is equally likely.
type Ngram struct {
	vocab int
	seen  [3]map[gram]int    // n(h,c) by order
	after [3]map[gram]follow // n(h) and t(h) by order
}

// gram is up to three tokens, oldest first; those that an order has not are -1.
type gram [3]int32

type follow struct{ total, distinct int }

// prefix is the gram without its last token.
func (g gram) prefix() gram { return gram{g[0], g[1], -1} }

// lastTokens returns the gram's last order+1 tokens.
func (g gram) lastTokens(order int) gram {
	for i := range 2 - order {
		g[i] = -1
	}
	return g
}

// countGrams returns how often each gram of three tokens occurs, and the number of grams.
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

// NewNgram counts tokens, which are below vocab. The first two, which have no
// two before them, are context only.
func NewNgram(tokens iter.Seq[int32], vocab int) *Ngram {
	t := &Ngram{vocab: vocab}
	grams, _ := countGrams(tokens)
	for order := range t.seen {
		seen, after := map[gram]int{}, map[gram]follow{}
		for g, n := range grams {
			seen[g.lastTokens(order)] += n
		}
		for g, n := range seen {
			f := after[g.prefix()]
			after[g.prefix()] = follow{f.total + n, f.distinct + 1}
		}
		t.seen[order], t.after[order] = seen, after
	}
	return t
}

// Loss returns the mean of -ln p over tokens but the first two, for each order:
// the token's frequency alone, given the one before, given the two before. In
// bits per byte it is Loss/ln 2 × tokens/bytes. Fewer than three tokens have no
// loss: it is NaN.
func (t *Ngram) Loss(tokens iter.Seq[int32]) (order [3]float64) {
	grams, n := countGrams(tokens)
	list := make([]gram, 0, len(grams))
	for g := range grams {
		list = append(list, g)
	}
	// The order of a map is random, and so would be the rounding of a sum.
	slices.SortFunc(list, func(a, b gram) int { return slices.CompareFunc(a[:], b[:], cmp.Compare[int32]) })
	for _, g := range list {
		p := 1 / float64(t.vocab)
		for k := range order {
			if f, ok := t.after[k][g.lastTokens(k).prefix()]; ok {
				seen := float64(t.seen[k][g.lastTokens(k)])
				p = (seen + float64(f.distinct)*p) / float64(f.total+f.distinct)
			}
			order[k] -= float64(grams[g]) * math.Log(p)
		}
	}
	for k := range order {
		order[k] /= float64(n)
	}
	return order
}
