package attention

import (
	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// A speed is how fast both forms go. Costs are in operations at the peak of
// multiply-adds of one core, and shares are of that peak, so that the same
// speed holds on a processor with another clock.
type speed struct {
	Token  float64 // cost of a query or a key in the direct form
	Direct float64 // share that pairs reach in the direct form
	Open   float64 // cost of a chunk without a past, over its cost in the direct form; causal
	Linear float64 // share that tokens reach with the moments
}

// A speedTable holds the speeds of one instruction set by direction (forward,
// backward), mask (none, causal), kind of mechanism and width of rows. Each
// was measured where the forms take the same time, or as near to that as could
// be reached, so that it is right where the choice is close.
type speedTable [2][2][kinds][len(speedWidths)]speed

// speedWidths are the widths D that speeds are measured at.
var speedWidths = [...]int{8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128}

// Kinds of mechanisms, as far as their speeds differ.
const (
	softmaxKind = iota
	mappedKind  // a feature map, and a polynomial of any degree
	firstKind   // polynomials of degree 1
	secondKind  // of degree 2
	thirdKind   // of degree 3 or more
	kinds       = iota
)

// speedTables are those of the instruction sets. NEON has no table of its own
// until somebody calibrates one: its kernels are those of AVX2 on narrower
// registers, and a speed is a share of the peak.
var speedTables = map[string]*speedTable{
	cpu.AVX512:  &avx512Speeds,
	cpu.AVX2:    &avx2Speeds,
	cpu.NEON:    &avx2Speeds,
	cpu.Generic: &genericSpeeds,
}

// kind returns the kind of the mechanism.
func (s *Spec[T]) kind() int {
	switch {
	case s.pairwise():
		return softmaxKind
	case s.mapped():
		return mappedKind
	case s.degree() == 1:
		return firstKind
	case s.degree() == 2:
		return secondKind
	}
	return thirdKind
}

// at returns the speed of a kind of mechanism at width d: on straight lines
// between the widths of the table, beyond them as at the last.
func (x *speedTable) at(kind, d int, causal, back bool) speed {
	row := &x[index(back)][index(causal)][kind]
	i := 0
	for i < len(row) && speedWidths[i] < d {
		i++
	}
	if i == 0 {
		return row[0]
	}
	if i == len(row) {
		return row[i-1]
	}
	a, b := &row[i-1], &row[i]
	t := float64(d-speedWidths[i-1]) / float64(speedWidths[i]-speedWidths[i-1])
	mid := func(a, b float64) float64 { return a + t*(b-a) }
	return speed{mid(a.Token, b.Token), mid(a.Direct, b.Direct), mid(a.Open, b.Open), mid(a.Linear, b.Linear)}
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A tally is the work of a key head with its query heads in both forms: tokens,
// and operations, a multiply-add counting two and columns of values whole
// vectors.
type tally struct {
	tokens  float64 // queries and keys
	pairs   float64 // operations of the direct form on pairs
	open    float64 // those of the linear form on pairs within chunks; causal
	moments float64 // those of the linear form on tokens and moments
	causal  bool
}

// tally counts the work of sequence s, forward or backward.
func (e *engine[T]) tally(c *Call[T], s *Sequence, back bool) tally {
	width := e.spec.width(c.Q.D)
	w, dv, v := float64(width), float64(c.V.D), float64(kernel.Pad(c.V.D))
	group := float64(c.Q.H / max(c.K.H, 1))
	chunk := min(e.chunk(c.Q.D, c.Chunk), max(s.N, s.M, 1))

	// A pair has its score, the product of its weight with the value, and the
	// weight itself. A feature of a token is made, and meets values and a sum.
	pair := w + v + 3
	key, query := v+1.5, v+1.5
	if back {
		// The score again and the gradients of weight, query, key and value.
		pair = w + dv + 2*float64(kernel.Pad(width)) + v + 8
		// Keys enter their moments, unless Forward has kept them, and meet those
		// of queries in two products; queries meet those of keys and enter their
		// own.
		key, query = v+1.5+dv+3.5, v+1.5+dv+3.5
		if c.Causal || e.choose(c, s, false) != Linear {
			key += v + 1.5
		}
	}
	pair *= 2 * group
	x := tally{tokens: float64(s.M) + group*float64(s.N), causal: c.Causal}
	closed, late := s.M, s.N // keys that enter the moments, queries that meet them
	if e.spec.band > 0 {
		// A piece of the queries meets the keys of all their bands.
		rows := (&unit[T]{spec: &e.spec}).bandRows()
		x.pairs = pair * float64(s.N) * float64(min(e.spec.band+min(s.N, rows)-1, s.M))
	} else if c.Causal {
		// A panel sees what its last query sees.
		beyond := float64(min(s.N, panelRows)-1) / 2 * float64(s.N)
		x.pairs = pair * (triangle(s.N+s.Offset, s.M) - triangle(s.Offset, s.M) + beyond)
		x.open = pair * (staircase(s.N+s.Offset, chunk) - staircase(s.Offset, chunk) + beyond)
		closed = min(s.M, max(s.N+s.Offset-1, 0)/chunk*chunk)
		late = s.N - min(max(chunk-s.Offset, 0), s.N)
	} else {
		x.pairs = pair * float64(s.N) * float64(s.M)
	}
	features := e.spec.features(e.spec.axes(c.Q.D, c.Rope != nil))
	x.moments = 2 * float64(features) * (key*float64(closed) + group*query*float64(late))
	return x
}

// triangle is the number of pairs that the queries at positions before n make
// with those of m keys at or before each.
func triangle(n, m int) float64 {
	k := float64(min(max(n, 0), m))
	return k*(k+1)/2 + float64(max(n-m, 0))*float64(m)
}

// staircase is triangle with the keys of each query's own chunk alone.
func staircase(n, chunk int) float64 {
	n = max(n, 0)
	return float64(n/chunk)*triangle(chunk, chunk) + triangle(n%chunk, chunk)
}

// direct returns the cost of the direct form.
func (x *tally) direct(s speed) float64 { return x.tokens*s.Token + x.pairs/s.Direct }

// linear returns the cost of the linear form. A single chunk is the same work
// in both forms, and what the linear one has about it has no use.
func (x *tally) linear(s speed) float64 {
	if x.causal && x.moments == 0 {
		return x.direct(s)
	}
	cost := x.moments / s.Linear
	if x.causal {
		cost += s.Open * (x.tokens*s.Token + x.open/s.Direct)
	}
	return cost
}

// costs returns the costs of a key head with its query heads in both forms;
// see Plan.
func (e *engine[T]) costs(c *Call[T], s *Sequence, back bool) (direct, linear float64) {
	x, v := e.tally(c, s, back), e.table.at(e.spec.kind(), c.Q.D, c.Causal, back)
	return x.direct(v), x.linear(v)
}
