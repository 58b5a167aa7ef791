package task

import (
	"cmp"
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

// context is the gram without its last token.
func (g gram) context() gram { return gram{g[0], g[1], -1} }

// of returns the gram's last order+1 tokens.
func (g gram) of(order int) gram {
	for i := range 2 - order {
		g[i] = -1
	}
	return g
}

// count returns the grams of three tokens and how often each is there.
func count(tokens []int32) map[gram]int {
	grams := map[gram]int{}
	for i := 2; i < len(tokens); i++ {
		grams[gram(tokens[i-2:i+1])]++
	}
	return grams
}

// NewNgram counts tokens, which are below vocab. The first two, which have no
// two before them, are context only.
func NewNgram(tokens []int32, vocab int) *Ngram {
	t := &Ngram{vocab: vocab}
	grams := count(tokens)
	for order := range t.seen {
		seen, after := map[gram]int{}, map[gram]follow{}
		for g, n := range grams {
			seen[g.of(order)] += n
		}
		for g, n := range seen {
			f := after[g.context()]
			after[g.context()] = follow{f.total + n, f.distinct + 1}
		}
		t.seen[order], t.after[order] = seen, after
	}
	return t
}

// Loss returns the mean of -ln p over tokens but the first two, for each order:
// the token's frequency alone, given the one before, given the two before. In
// bits per byte it is Loss/ln 2 × tokens/bytes. Fewer than three tokens have no
// loss: it is NaN.
func (t *Ngram) Loss(tokens []int32) (order [3]float64) {
	grams := count(tokens)
	list := make([]gram, 0, len(grams))
	for g := range grams {
		list = append(list, g)
	}
	// The order of a map is random, and so would be the rounding of a sum.
	slices.SortFunc(list, func(a, b gram) int { return slices.CompareFunc(a[:], b[:], cmp.Compare[int32]) })
	for _, g := range list {
		p := 1 / float64(t.vocab)
		for k := range order {
			if f, ok := t.after[k][g.of(k).context()]; ok {
				n := float64(t.seen[k][g.of(k)])
				p = (n + float64(f.distinct)*p) / float64(f.total+f.distinct)
			}
			order[k] -= float64(grams[g]) * math.Log(p)
		}
	}
	for k := range order {
		order[k] /= float64(max(len(tokens)-2, 0))
	}
	return order
}
