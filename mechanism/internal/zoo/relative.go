package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
)

// farthestBucket is the distance from which on all keys are in the last bucket.
const farthestBucket = 128

// relativeSoftmax is softmax of q·k/√D plus a learned number by head and distance.
type relativeSoftmax struct {
	sparseSoftmax
	params *param.Set
	table  *param.Param // [buckets,heads]
	heads  int
	bucket [2*farthestBucket + 1]uint8 // of the distances j-i from -farthestBucket on
}

// allKeys is the rule of a query that sees all keys, or in causal calls all up to its own.
type allKeys struct{}

func (allKeys) addPairs(p *headwise.Pattern, s headGeometry) {
	lo, hi := p.AddPart(headwise.Range(0, s.n), headwise.Range(0, s.m))
	for i := range lo {
		if lo[i], hi[i] = 0, int32(s.m); s.causal {
			hi[i] = int32(min(s.offset+i+1, s.m))
		}
	}
}

// NewRelativeSoftmax returns softmax attention whose scores q·k/√D have a learned term by
// head and distance j-i of key j from query i (Raffel et al. 2020, arXiv 1910.10683, section
// 2.1). The parameter bias [buckets,heads] has a row for each bucket of distances: the first
// half for keys up to the query, the second half for keys after it. In each half, the first
// half of the rows stand for single distances, the others for ranges that grow geometrically;
// the last row stands for 128 and more. It returns an error if buckets is odd or not from 4
// to 256, or if heads is not from 1 to 2²⁴/buckets.
func NewRelativeSoftmax(heads, buckets int) (attention.Mechanism, error) {
	if buckets < 4 || buckets > 256 || buckets%2 != 0 {
		return nil, fmt.Errorf("buckets: %d, needs an even number from 4 to 256", buckets)
	}
	if heads < 1 || heads > entry.MaxNumbers/buckets {
		return nil, fmt.Errorf("heads: %d, needs a number from 1 to %d", heads, entry.MaxNumbers/buckets)
	}
	x := &relativeSoftmax{params: new(param.Set), heads: heads}
	x.sparseSoftmax = sparseSoftmax{
		name: "relative-softmax", setting: fmt.Sprintf("relative-softmax buckets=%d", buckets), rule: allKeys{},
	}
	x.softmax = &headwise.PatternSoftmax{Bias: x}
	x.table = x.params.New("bias", false, buckets, heads)
	for i := range x.bucket {
		x.bucket[i] = uint8(DistanceBucket(i-farthestBucket, buckets))
	}
	return headwise.New(x), nil
}

// DistanceBucket returns the bucket of distance j-i. Logarithms are rounded to float32, as in
// the programs that train such tables.
func DistanceBucket(distance, buckets int) int {
	half, first := buckets/2, 0
	if distance > 0 {
		first = half
	}
	n, single := max(distance, -distance), half/2
	if n < single {
		return first + n
	}
	power := float32(math.Log(float64(float32(n)/float32(single)))) / float32(math.Log(farthestBucket/float64(single)))
	return first + min(single+int(power*float32(half-single)), half-1)
}

func (x *relativeSoftmax) Params() *param.Set { return x.params }

func (x *relativeSoftmax) Check(c *attention.Call) error {
	if c.Q.H != x.heads {
		return fmt.Errorf("q: has %d heads, bias has %d", c.Q.H, x.heads)
	}
	return nil
}

// termIndex returns the index in the table for a query and a key of a head.
func (x *relativeSoftmax) termIndex(query, key, head int) int {
	distance := min(max(key-query, -farthestBucket), farthestBucket)
	return int(x.bucket[distance+farthestBucket])*x.heads + head
}

// Add adds the terms of a tile.
func (x *relativeSoftmax) Add(t *headwise.PatternTile) {
	over := 1 / t.Scale
	for r := range t.Rows {
		query := t.Query(r) + t.Head.Offset
		from, end := t.Visible(r)
		for c := from; c < end; c++ {
			t.S[r*t.LD+c] += float(over * x.table.Data[x.termIndex(query, t.Key(c), t.Head.Head)])
		}
	}
}

// Grad adds the gradients of a tile's scores to those of the terms.
func (x *relativeSoftmax) Grad(t *headwise.PatternTile, g *headwise.Grads) {
	for r := range t.Rows {
		query := t.Query(r) + t.Head.Offset
		from, end := t.Visible(r)
		for c := from; c < end; c++ {
			g.Params[0][x.termIndex(query, t.Key(c), t.Head.Head)] += t.S[r*t.LD+c]
		}
	}
}
