package zoo

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
)

// sortCausal hashes and sorts the tokens of a causal call. A token is a position that has a key, a
// query or both.
func (p *lshPass) sortCausal(h *headwise.Head) {
	x, m, ar := p.x, h.K.Rows, h.Scratch
	tokens := max(m, h.Offset+h.Q.Rows)
	p.chunks = 0 // chunks are of a bucket
	p.take(h, tokens)
	p.rank = arena.Take[int32](ar, tokens*p.rounds)
	size := int32(x.bucket)

	mark := ar.Mark()
	defer ar.Reset(mark)
	groups := arena.TakeZeros[int32](ar, tokens)
	for r := range p.rounds {
		axes := x.axes(r, x.buckets)
		AngularBuckets(h, groups[h.Offset:][:h.Q.Rows], h.Q, axes)
		for i := range len(h.PastCodes) / p.rounds {
			groups[i] = h.PastCodes[i*p.rounds+r]
		}
		inner := ar.Mark()
		order, begin := entry.SortGroups(ar, groups, x.buckets)
		copy(p.order[r*tokens:], order)
		keys, sorted, next := p.roundKeys(r), 0, int32(0)
		for b := range x.buckets {
			rank := int32(0)
			for _, i := range order[begin[b]:begin[b+1]] {
				at := int(i)*p.rounds + r
				p.rank[at], p.chunk[at] = rank, next+rank/size
				if int(i) < m && h.IsUnmasked(int(i)) {
					keys[sorted] = i
					sorted++
					rank++
				}
			}
			next += rank/size + 2 // no chunk is beside one of another bucket
		}
		ar.Reset(inner)
	}
}

// causalPairs returns the pairs of the chunks of rounds r0 ≤ r < r1 of a causal call. A chunk sees itself
// and the chunk before, up to the position of each query.
func (p *lshPass) causalPairs(r0, r1 int) *headwise.Pattern {
	pairs, size := headwise.NewPattern(), p.x.bucket
	tokens := len(p.order) / p.rounds
	for r := r0; r < r1; r++ {
		order, keys := p.order[r*tokens:(r+1)*tokens], p.roundKeys(r)
		sorted := 0 // keys up to the token
		for t0 := 0; t0 < tokens; {
			at := int(order[t0])*p.rounds + r
			rank, id := int(p.rank[at]), p.chunk[at]
			from := sorted - rank + max(rank/size-1, 0)*size
			t1, first := t0, t0 // the tokens of the chunk, and those with a query
			for t1 < tokens && p.chunk[int(order[t1])*p.rounds+r] == id {
				if int(order[t1]) < p.offset {
					first = t1 + 1
				}
				t1++
			}
			end := sorted
			for end < len(keys) && p.chunk[int(keys[end])*p.rounds+r] == id {
				end++
			}
			if first < t1 && from < end {
				lo, hi := pairs.AddPart(headwise.RowSet{First: -p.offset, N: t1 - first, List: order[first:t1]}, headwise.RowSet{N: end - from, List: keys[from:end]})
				seen := sorted
				for a, i := range order[first:t1] {
					for seen < end && keys[seen] <= i {
						seen++
					}
					lo[a], hi[a] = 0, int32(seen-from)
				}
			}
			t0, sorted = t1, end
		}
	}
	return pairs
}
